//! Reads families of fields that are distinguished by their names: `RateLimit-Limit`, `X-RateLimit-Remaining-Tokens`,
//! `x-hubspot-ratelimit-daily`, `anthropic-ratelimit-requests-reset` …
//!
//! A name contains the vendor (before `ratelimit`), the quantity (limit, remaining, used, reset, window), and the
//! dimension (all the rest). Each dimension is a budget of its own.

mod name;

use std::time::Duration;

use self::name::{Label, Name, What, Words};
use super::{
    Cause, Dialect, count,
    evidence::{self, Evidence, ReportedBudget},
    fields::Fields,
    ietf::{self, IetfPolicy},
    time::{self, Now, When},
};

/// Longest value that may name a budget.
const LONGEST_NAME: usize = 64;

/// Budget whose fields are being collected.
#[derive(Default)]
struct Dimension<'a> {
    vendor: &'a str,
    name: Words<'a>,
    limit: Option<f64>,
    policies: Vec<IetfPolicy<'a>>,
    remaining: Option<f64>,
    used: Option<f64>,
    reset: Option<When>,
    /// `Reset-After`, which is more exact than `Reset`, since it needs no clock.
    reset_after: Option<When>,
    left_window: Option<Duration>,
    window: Option<WrittenWindow<'a>>,
    fill: Option<f64>,
    /// Set by a negative limit: there is no limit, whatever the other fields say.
    none: bool,
}

/// A window in the words of its field.
#[derive(Clone, Copy)]
struct WrittenWindow<'a> {
    text: &'a str,
    milliseconds: bool,
}

/// Fields that name no dimension.
#[derive(Default)]
struct Labels<'a> {
    prefixed: bool,
    field_first: bool,
    listed: bool,
    used: bool,
    resource: Option<&'a str>,
    bucket: Option<&'a str>,
    scope: Option<&'a str>,
    name: Option<&'a str>,
    zone: Option<&'a str>,
    who: Option<&'a str>,
    category: Option<&'a str>,
    kind: Option<&'a str>,
    reason: Option<&'a str>,
    problem: Option<&'a str>,
    global: bool,
    near: bool,
}

/// Reads all fields of these families; `policies` came in a field of their own.
pub(super) fn read(fields: &Fields<'_>, policies: Vec<IetfPolicy<'_>>, now: Now, evidence: &mut Evidence) {
    let (mut dimensions, mut labels) = (Vec::<Dimension<'_>>::new(), Labels::default());
    for field in fields.iter() {
        let Some(name) = Name::read(field.name) else { continue };
        match name.what {
            What::Label(label) => labels.set(label, &field.value),
            _ => {
                labels.note(&name);
                let known =
                    dimensions.iter().position(|known| known.vendor == name.vendor && known.name == name.dimension);
                let index = known.unwrap_or_else(|| {
                    let (vendor, name) = (name.vendor, name.dimension.clone());
                    dimensions.push(Dimension { vendor, name, ..Dimension::default() });
                    dimensions.len() - 1
                });
                dimensions[index].set(&name, &field.value);
            }
        }
    }
    join(&mut dimensions);
    labels.listed = dimensions.iter().any(|dimension| !dimension.policies.is_empty()) && policies.is_empty();
    let dialect = labels.dialect(&dimensions);
    let (mut rest_reset, mut rest_window) = (None, None);
    let mut policies = Some(policies);
    for mut dimension in dimensions {
        if dimension.name.is_empty() {
            dimension.policies.extend(policies.take().into_iter().flatten());
        }
        if dimension.none {
            continue;
        }
        let nameless = dimension.name.is_empty();
        let others = std::mem::take(&mut dimension.policies);
        let (budget, used) = dimension.budget(&others, &labels, dialect, now);
        let ReportedBudget { bucket, .. } = &budget;
        if let (true, None, None) = (nameless, bucket.limit, bucket.remaining) {
            (rest_reset, rest_window) = (rest_reset.or(bucket.reset), rest_window.or(bucket.window));
        }
        evidence.speaks(dialect);
        if budget.is_used_up() && bucket.name.as_deref().is_some_and(counts_those_in_flight) {
            evidence.cause = Some(Cause::Concurrency);
        }
        evidence.push(budget);
        others.iter().filter(|policy| Some(**policy) != used).for_each(|policy| policy.announce(evidence));
    }
    policies.into_iter().flatten().for_each(|policy| policy.announce(evidence));
    lend(rest_reset, rest_window, evidence);
    labels.tell(evidence);
}

/// Joins two dimensions whose names differ, if one has only a limit and the other all but the limit (`burst-capacity`
/// and `remaining`, `dailylimit` and `remaining`).
fn join(dimensions: &mut Vec<Dimension<'_>>) {
    let [a, b] = dimensions.as_slice() else { return };
    let is_limit = |of: &Dimension<'_>| of.limit.is_some() && of.remaining.is_none() && of.used.is_none();
    let is_rest = |of: &Dimension<'_>| of.limit.is_none() && of.remaining.is_some();
    let (limit, rest) = if is_limit(a) { (0, 1) } else { (1, 0) };
    let alike = a.vendor == b.vendor && (a.name.is_empty() || b.name.is_empty());
    // A remainder above the limit belongs to another budget.
    let alike = alike && dimensions[rest].remaining <= dimensions[limit].limit;
    if !alike || !is_limit(&dimensions[limit]) || !is_rest(&dimensions[rest]) {
        return;
    }
    let limit = dimensions.swap_remove(limit);
    let rest = &mut dimensions[0];
    (rest.limit, rest.policies) = (limit.limit, limit.policies);
    (rest.reset, rest.reset_after) = (rest.reset.or(limit.reset), rest.reset_after.or(limit.reset_after));
    (rest.window, rest.fill) = (rest.window.or(limit.window), rest.fill.or(limit.fill));
    if rest.name.is_empty() {
        rest.name = limit.name;
    }
}

/// Gives a reset or a window without a budget of its own to the budgets that report a limit or a remainder.
fn lend(reset: Option<Duration>, window: Option<Duration>, evidence: &mut Evidence) {
    let is_told = |budget: &ReportedBudget| budget.bucket.limit.is_some() || budget.bucket.remaining.is_some();
    if (reset.is_some() || window.is_some()) && evidence.budgets.iter().any(is_told) {
        evidence.budgets.retain(is_told);
        evidence.spread(reset, window);
    }
}

// === impl Dimension ===

impl<'a> Dimension<'a> {
    fn set(&mut self, name: &Name<'_>, value: &'a str) {
        match name.what {
            What::Limit => {
                self.none |= count::is_negative(value);
                self.limit = self.limit.or_else(|| count::count(value));
                // `1m` is a window, not a limit.
                let spelled = time::spelled(value.trim()).map(|_| WrittenWindow { text: value, milliseconds: false });
                self.window = self.window.or(spelled);
                self.policies.extend(ietf::policies(value).filter(|policy| policy.window.is_some()));
            }
            What::Remaining => {
                self.remaining = self.remaining.or_else(|| least(value));
                // The value of `remaining` may also contain the window.
                self.left_window = ietf::policies(value).find_map(|policy| policy.window);
            }
            What::Used => self.used = self.used.or_else(|| count::count(value)),
            What::Reset { after: false } => self.reset = self.reset.or_else(|| latest(value, name)),
            What::Reset { after: true } => self.reset_after = self.reset_after.or_else(|| latest(value, name)),
            What::Window => self.window = Some(WrittenWindow { text: value, milliseconds: name.milliseconds }),
            What::Fill => self.fill = count::count(value),
            What::Label(_) => {}
        }
    }

    /// Returns the budget, and the one of the `policies` that belongs to it.
    fn budget(
        self,
        policies: &[IetfPolicy<'a>],
        labels: &Labels<'_>,
        dialect: Dialect,
        now: Now,
    ) -> (ReportedBudget, Option<IetfPolicy<'a>>) {
        let name = self.name.join("-");
        let mut budget = ReportedBudget::new(Some(&name));
        let reset = self.reset_after.or(self.reset);
        budget.resets(reset, now);
        let bucket = &mut budget.bucket;
        (bucket.limit, bucket.remaining) = (self.limit, self.remaining);
        bucket.refills = matches!(reset, Some(When::In { spelled: true, .. })) || dialect == Dialect::ANTHROPIC;
        if let Some(used) = self.used {
            budget.used(used);
        }
        let bucket = &mut budget.bucket;
        let own = bucket.limit.and_then(|limit| ietf::fitting(policies, limit, bucket.remaining, bucket.reset));
        if let Some(policy) = own {
            (bucket.limit, bucket.window) = (Some(policy.quota), policy.window);
            budget.bucket.requests &= policy.counts_requests();
            if let (None, Some(window)) = (budget.bucket.reset, policy.window) {
                // A sliding window frees one request at a time, not all at once.
                budget.probe = Some(window.div_f64(policy.quota.max(1.0))).filter(|_| window > Duration::from_secs(60));
            }
        }
        let epoch_ms = matches!(reset, Some(When::At { coarse: false, .. }));
        let told = self.window.and_then(|WrittenWindow { text, milliseconds }| {
            // A bare number has the same unit as the reset.
            let bare = count::decimal(text.trim()).is_some();
            time::length(text, milliseconds || bare && epoch_ms)
        });
        let named =
            || evidence::window_in(&name).or_else(|| evidence::window_in(self.vendor)).or_else(|| labels.window());
        let bucket = &mut budget.bucket;
        bucket.window = bucket
            .window
            .or(self.left_window)
            .or(told)
            .or_else(named)
            .or_else(|| labels.github_window(dialect, bucket.reset));
        if let (Some(fill), Some(limit)) = (self.fill.filter(|fill| *fill > 0.0), bucket.limit) {
            // `fill` is added each interval (or second), up to the limit.
            let each = told.unwrap_or(Duration::from_secs(1));
            bucket.window = Some(time::duration(each.as_secs_f64() * limit / fill));
            (bucket.refills, budget.probe) = (true, Some(each));
        }
        // Capacity for requests in flight is freed when other requests are answered.
        if counts_those_in_flight(&name) || labels.is_everybodys() {
            (budget.binds, budget.bucket.requests) = (false, false);
        }
        if dialect == Dialect::GITHUB && labels.resource == Some("graphql") {
            budget.bucket.requests = false;
        }
        if budget.bucket.name.is_none() {
            budget.bucket.name = labels.budget_name();
        }
        (budget, own)
    }
}

fn counts_those_in_flight(name: &str) -> bool {
    name.split('-').any(|word| word.starts_with("concurren") || matches!(word, "conn" | "connections"))
}

/// Smallest of several values, if the field was sent more than once.
fn least(value: &str) -> Option<f64> {
    count::grouped(value).or_else(|| value.split(',').filter_map(count::count).reduce(f64::min))
}

/// Time of a reset; the first one, if the field was sent more than once.
fn latest(value: &str, name: &Name<'_>) -> Option<When> {
    let read = |value: &str| match (name.fine, count::decimal(value.trim())) {
        // A number of 1e8 seconds or more is a time since 1970, whose digits show the unit.
        (Some(unit), Some(number)) if number < 1e8 * unit => {
            Some(When::In { delay: time::duration(number / unit), spelled: false })
        }
        _ => time::reset(value, name.milliseconds),
    };
    read(value).or_else(|| value.split(',').find_map(read))
}

// === impl Labels ===

impl<'a> Labels<'a> {
    fn set(&mut self, label: Label, value: &'a str) {
        let value = value.trim_matches('"');
        let text = Some(value).filter(|value| !value.is_empty());
        let is_true = value.eq_ignore_ascii_case("true") || value == "1";
        match label {
            Label::Resource => self.resource = text,
            Label::Bucket => self.bucket = text,
            Label::Scope => self.scope = text,
            Label::Name => self.name = text,
            Label::Zone => self.zone = text,
            Label::Who => self.who = text,
            Label::Category => self.category = text,
            Label::Type => self.kind = text,
            Label::Reason => self.reason = text,
            Label::Problem => self.problem = text,
            Label::Global => self.global = is_true,
            Label::Near => self.near = is_true,
        }
    }

    fn note(&mut self, name: &Name<'_>) {
        self.prefixed |= name.prefixed;
        let openai =
            || name.dimension[..] == ["requests"] || !name.dimension.iter().all(|word| evidence::counts_requests(word));
        self.field_first |= name.field_first && openai();
        self.used |= matches!(name.what, What::Used);
    }

    fn dialect(&self, dimensions: &[Dimension<'_>]) -> Dialect {
        let vendor = |vendor: &str| dimensions.iter().any(|dimension| dimension.vendor == vendor);
        let discord = self.bucket.is_some() || dimensions.iter().any(|dimension| dimension.reset_after.is_some());
        match () {
            () if vendor("anthropic") => Dialect::ANTHROPIC,
            () if discord || self.global => Dialect::DISCORD,
            () if self.resource.is_some() => Dialect::GITHUB,
            () if self.field_first => Dialect::OPENAI,
            () if self.listed => Dialect::IETF_DRAFT_3,
            () if self.name.is_some() => Dialect::GITLAB,
            () if dimensions.iter().any(|dimension| !dimension.vendor.is_empty()) => Dialect::VENDOR,
            () if self.prefixed => Dialect::X_RATELIMIT,
            () => Dialect::RATELIMIT,
        }
    }

    /// Window that the kind of the limit names: `QPS`, `Daily-limit`.
    fn window(&self) -> Option<Duration> {
        let kind = self.kind.or(self.problem)?.to_ascii_lowercase();
        if kind == "qps" { Some(Duration::from_secs(1)) } else { evidence::window_in(&kind) }
    }

    /// Window of a GitHub resource: a minute for searches, an hour for others.
    fn github_window(&self, dialect: Dialect, reset: Option<Duration>) -> Option<Duration> {
        let resource = self.resource.filter(|_| dialect == Dialect::GITHUB && self.used)?;
        let window = Duration::from_secs(if resource.contains("search") { 60 } else { 3600 });
        Some(window).filter(|window| reset.is_none_or(|reset| reset <= *window + Duration::from_secs(1)))
    }

    /// Name that distinguishes the budgets of an API: GitHub's resource, Discord's bucket, GitLab's throttle.
    fn budget_name(&self) -> Option<Box<str>> {
        let name = self.resource.or(self.bucket).or(self.name).filter(|name| name.len() <= LONGEST_NAME)?;
        Some(name.to_ascii_lowercase().into())
    }

    /// Returns whether the numbers count all clients together, so that the remainder is not ours.
    fn is_everybodys(&self) -> bool {
        let own = |zone: &str| ["ip", "user", "key", "token", "account", "client"].iter().any(|own| zone.contains(own));
        let shared = self.scope == Some("shared") || self.who.is_some_and(|who| who.contains("shed"));
        shared || self.zone.is_some_and(|zone| !own(zone))
    }

    fn tell(&self, evidence: &mut Evidence) {
        evidence.warning |= self.near;
        // A limit per second refuses for a second, whatever the answer reports of another limit.
        let second = self.window().filter(|window| *window <= Duration::from_secs(1));
        evidence.at_least = evidence.at_least.or(second);
        let kind = match (self.category, self.kind) {
            (Some(category), Some(kind)) => Some(format!("{category}/{kind}")),
            (category, kind) => category.or(kind).map(str::to_owned),
        };
        let global = self.global.then_some("global");
        let labels = [self.reason, self.problem, global, self.scope, self.resource, self.name, self.zone];
        let labels = labels.into_iter().chain([kind.as_deref(), self.bucket]);
        labels.flatten().for_each(|label| evidence.concerns(label));
        let concurrency =
            |reason: Option<&str>| reason.is_some_and(|reason| reason.to_ascii_lowercase().contains("concurren"));
        if self.reason.is_some() || self.problem.is_some() {
            evidence.speaks(Dialect::VENDOR);
        }
        if concurrency(self.reason) || concurrency(self.problem) {
            evidence.cause = Some(Cause::Concurrency);
        }
        if self.zone.is_some_and(|zone| zone.contains("ip")) {
            evidence.cause.get_or_insert(Cause::Quota);
        }
    }
}
