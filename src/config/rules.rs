//! Turns `[[rule]]` tables and `--limit` into rules. Knows nothing of other tables.

mod added;
mod costs;
mod egress;
mod fleet;
mod preset;
mod refused;
mod reserve;
mod turns;
mod units;
mod waits;

use std::{collections::HashMap, ops::Range, sync::Arc};

pub(super) use self::costs::settle_uncosted;
pub(super) use self::fleet::{divide, floors};
pub(super) use self::waits::settle_waits;
use super::{
    answers::AnswerKeys,
    diagnostic::{Diagnostic, Place, Spanned},
    files::FileRef,
    keys,
    reader::{Reader, Table},
};
use crate::{
    limit::{Limits, MarginSpec},
    policy::{CachePolicy, HostPattern, Https, MaxCost, Policy, RuleCost, Rules, UsageSource},
};

/// A rule whose values are valid one by one, not yet compared with other rules.
#[derive(Clone)]
pub(super) struct RawRule {
    policy: Policy,
    /// Makes all limits strict, including limits that replace them.
    strict: bool,
    /// Place of the name, or else of the rule.
    named: Spanned<()>,
    /// Lines of the rule in its file.
    lines: Range<usize>,
    hosts: Vec<Spanned<HostPattern>>,
    /// Place of `https`.
    https: Option<Spanned<Https>>,
    /// Files that the rule names.
    files: Vec<FileRef>,
    /// Costs of its requests.
    cost: Option<Spanned<RuleCost>>,
    /// Largest cost that its requests may state.
    max_cost: Option<Spanned<MaxCost>>,
    /// Sources of usage in answers, with their places.
    usage: Option<Vec<Spanned<UsageSource>>>,
    /// Keys of the rule on answers; the file's defaults fill in the rest.
    answers: AnswerKeys,
    /// Bounds on waiting that the rule has.
    waits: waits::WaitKeys,
}

/// Place of a rule in a file.
pub(super) struct RuleExtent {
    pub(super) name: Arc<str>,
    lines: Range<usize>,
}

/// Places of these rules.
pub(super) fn extents(drafts: &[RawRule]) -> Vec<RuleExtent> {
    drafts.iter().map(|draft| RuleExtent { name: draft.policy.name.clone(), lines: draft.lines.clone() }).collect()
}

/// Reads all rules of a file.
pub(super) fn read<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<RawRule> {
    let tables = reader.tables(root, "rule");
    tables.iter().map(|table| RawRule::read(reader, table)).collect()
}

/// Overlays the rules of a file with limits by host (`--limit`, `ANDANTE_LIMIT`).
pub(super) fn overlay(
    drafts: &mut Vec<RawRule>,
    limits: Vec<Spanned<(HostPattern, Limits)>>,
    problems: &mut Vec<Diagnostic>,
) {
    let mut seen: Vec<Spanned<(HostPattern, Limits)>> = Vec::new();
    for limit in limits {
        if let Some(earlier) = seen.iter().find(|earlier| earlier.value.0 == limit.value.0) {
            // The environment counts only for hosts that no flag names.
            if earlier.place == limit.place {
                let both = format!("{},{}", earlier.text, limit.value.1);
                problems.push(Diagnostic::error(
                    &limit,
                    format!("{} is named twice", limit.value.0),
                    format!("write all its limits in one: {both}"),
                ));
            }
            continue;
        }
        place_limit(drafts, &limit);
        seen.push(limit);
    }
}

/// Compares the rules with each other.
pub(super) fn check(drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let mut hosts: HashMap<&HostPattern, &Spanned<HostPattern>> = HashMap::new();
    let own = drafts.iter().filter(|draft| draft.policy.added.is_none());
    for host in own.flat_map(|draft| &draft.hosts) {
        match hosts.get(&host.value) {
            Some(earlier) => problems.push(Diagnostic::error(
                host,
                format!("{} has a rule already, at {}", host.value, earlier.place),
                "write all limits of a host into one rule",
            )),
            None => _ = hosts.insert(&host.value, host),
        }
    }
    costs::check(drafts, problems);
    units::check(drafts, problems);
    drafts.iter().for_each(|draft| reserve::check(draft, problems));
    let mut names: HashMap<&str, &RawRule> = HashMap::new();
    for draft in drafts {
        let earlier = *names.entry(&draft.policy.name).or_insert(draft);
        // Rules for the same hosts are reported already; without a `name` they share the hosts' name too.
        let reported = draft.policy.added.is_none() && earlier.policy.added.is_none();
        let itself = std::ptr::eq(earlier, draft);
        if itself || reported && earlier.policy.hosts == draft.policy.hosts {
            continue;
        }
        // Rules without a `name` are named after the requests that they match.
        let (what, hint) = match (&draft.named.key, &earlier.named.key) {
            (None, None) => (
                format!("these requests have a rule already, at {}: {}", earlier.named.place, draft.policy.name),
                "write all limits of these requests into one rule, or give one of the rules a name",
            ),
            _ => (
                format!("{:?} is the name of another rule already, at {}", &*draft.policy.name, earlier.named.place),
                "give each rule a name of its own: metrics and logs tell them apart by it",
            ),
        };
        problems.push(Diagnostic::error(&draft.named, what, hint));
    }
}

/// Compares the list of intercepted hosts with the `https` of rules for exactly the same hosts. A wider and a narrower
/// pattern are no contradiction: see `Rules::https`.
pub(super) fn intercepted(drafts: &[RawRule], intercept: &[Spanned<HostPattern>], problems: &mut Vec<Diagnostic>) {
    for draft in drafts {
        let word = match &draft.https {
            Some(https) if https.value != Https::Intercept => https,
            _ => continue,
        };
        let same = |host: &Spanned<HostPattern>| intercept.iter().find(|pattern| pattern.value == host.value);
        let Some(pattern) = draft.hosts.iter().find_map(same) else { continue };
        // A stronger source replaces the file's value, unless the file refuses the host.
        if word.value != Https::Refuse && !pattern.place.is_beside(&word.place) {
            continue;
        }
        let what = format!("{} is to be intercepted, but https = {:?} at {}", pattern.value, word.text, word.place);
        let hint = "name the hosts to intercept one by one, or leave `https` out of that rule";
        problems.push(Diagnostic::error(pattern, what, hint));
    }
}

/// The files that rules name.
pub(super) fn files(drafts: &[RawRule]) -> impl Iterator<Item = &FileRef> {
    drafts.iter().flat_map(|draft| &draft.files)
}

/// The finished rules; `answers` fills in missing values.
pub(super) fn finish(drafts: Vec<RawRule>, answers: AnswerKeys) -> Rules {
    let finished = |draft: RawRule| draft.answers.or(answers).over(draft.policy);
    Rules::new(drafts.into_iter().map(finished).collect()).otherwise(answers.over(Policy::unruled()))
}

/// Writes `limit` into the rule of its host, or into a new one.
fn place_limit(drafts: &mut Vec<RawRule>, limit: &Spanned<(HostPattern, Limits)>) {
    let (pattern, limits) = &limit.value;
    let own = |draft: &RawRule| draft.policy.added.is_none() && draft.policy.hosts.contains(pattern);
    let at = drafts.iter().position(own);
    let Some(at) = at else {
        drafts.push(RawRule::of_host(Policy::new(&pattern.to_string(), Vec::new()), limit));
        return;
    };
    if drafts[at].policy.hosts.len() > 1 {
        // The rule's other hosts keep the file's limits.
        let draft = &mut drafts[at];
        draft.policy.hosts.retain(|host| host != pattern);
        draft.hosts.retain(|host| host.value != *pattern);
        let mut own = RawRule::of_host(Policy { name: pattern.to_string().into(), ..draft.policy.clone() }, limit);
        own.strict = draft.strict;
        own.https.clone_from(&draft.https);
        own.answers = draft.answers;
        own.waits = draft.waits;
        own.set(limits);
        drafts.insert(at + 1, own);
    } else {
        drafts[at].set(limits);
    }
}

// === impl RuleExtent ===

impl RuleExtent {
    /// Returns whether `place` is in the rule.
    pub(super) fn holds(&self, place: &Place) -> bool {
        matches!(place, Place::File { at: Some((line, _)), .. } if self.lines.contains(line))
    }
}

// === impl RawRule ===

impl RawRule {
    fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Self {
        let before = reader.problems.len();
        reader.only(table, &keys::RULE);
        let header = reader.header(table);
        let hosts = read_hosts(reader, table, &header);
        let name = reader.one(table, &keys::NAME);
        let written: Vec<&str> = hosts.iter().map(|host| host.text.as_str()).collect();
        let added = added::read(reader, table, &hosts, &header);
        let mut written = written.join(", ");
        if let Some(added) = &added {
            written = format!("{written} {added}");
        }
        let mut policy = Policy::new(
            name.as_ref().map_or(&written, |name| &name.value),
            hosts.iter().map(|host| host.value.clone()).collect(),
        );
        policy.added = added;
        let preset = reader.one(table, &keys::PRESET).map(|preset| preset::read(preset.value)).unwrap_or_default();
        let limits = read_limits(reader, table, preset.limits);
        let cost = reader.one(table, &keys::COST);
        policy.cost = cost.as_ref().map(|cost| cost.value.clone());
        let max_cost = reader.one(table, &keys::MAX_COST);
        policy.max_cost = max_cost.as_ref().map(|most| most.value.clone());
        let read_body = reader.one(table, &keys::READ_BODY);
        policy.read_body = read_body.as_ref().and_then(|most| most.value);
        let usage = reader.several(table, &keys::USAGE);
        policy.usage = values(usage.clone()).unwrap_or(preset.usage);
        let usage = usage.map(|usage| usage.value);
        policy.refused = refused::read(reader, table);
        let waits = waits::read(reader, table, &mut policy);
        policy.learns_patience = reader.one(table, &keys::PATIENCE).is_some_and(|patience| patience.value);
        policy.turns = turns::read(reader, table);
        sharing(reader, table, &mut policy);
        policy.include_usage = include_usage(reader, table, &policy);
        let margin = reader.one(table, &keys::MARGIN);
        let https = reader.one(table, &keys::HTTPS);
        policy.https = https.as_ref().map(|https| https.value);
        let answers = AnswerKeys::read(reader, table);
        let (egress, files) = egress::read(reader, table);
        policy.egress = egress;
        policy.allow_private = reader.switch(table, &keys::ALLOW_PRIVATE).is_some_and(|allow| allow.value);
        let strict = reader.switch(table, &keys::STRICT).is_some_and(|strict| strict.value);
        let named =
            name.map_or(header, |name| Spanned { value: (), text: name.text, key: name.key, place: name.place });
        let lines = reader.lines_of(table);
        // A rule with a mistake may have been meant to limit something.
        if limits == Limits::default() && !has_purpose(table) && reader.problems.len() == before {
            let hint = "write limits = [\"500/min\"] or in-flight = 20";
            reader.problems.push(Diagnostic::warning(&reader.header(table), "this rule limits nothing", hint));
        }
        let mut draft =
            Self { policy, strict, named, lines, hosts, https, files, cost, max_cost, usage, answers, waits };
        draft.set(&limits);
        if let Some(margin) = margin {
            draft.policy.margin = margin.value;
            reader.problems.extend(too_wide(&draft.policy, &margin));
        }
        draft
    }

    /// A rule for the one host of `limit`, otherwise like `policy`.
    fn of_host(policy: Policy, limit: &Spanned<(HostPattern, Limits)>) -> Self {
        let (pattern, limits) = &limit.value;
        let host = Spanned { value: pattern.clone(), text: limit.text.clone(), key: None, place: limit.place.clone() };
        let named = Spanned { value: (), text: String::new(), key: None, place: limit.place.clone() };
        let policy = Policy { hosts: vec![pattern.clone()], ..policy };
        let (files, answers) = (Vec::new(), AnswerKeys::default());
        let (lines, hosts, waits) = (0..0, vec![host], waits::WaitKeys::default());
        let mut draft = Self {
            policy,
            strict: false,
            named,
            lines,
            hosts,
            https: None,
            files,
            cost: None,
            max_cost: None,
            usage: None,
            answers,
            waits,
        };
        draft.set(limits);
        draft
    }

    /// Replaces the limits that `limits` contains, and leaves the others.
    fn set(&mut self, limits: &Limits) {
        if !(limits.limits.is_empty() && limits.calendar.is_empty()) {
            self.policy.limits.clone_from(&limits.limits);
            self.policy.calendar.clone_from(&limits.calendar);
        }
        if self.strict {
            self.policy.limits.iter_mut().for_each(|limit| limit.strict = true);
        }
        self.policy.in_flight = limits.in_flight.or(self.policy.in_flight);
    }
}

fn read_hosts<'a>(reader: &mut Reader<'a>, table: &Table<'a>, header: &Spanned<()>) -> Vec<Spanned<HostPattern>> {
    let before = reader.problems.len();
    let hosts = reader.several(table, &keys::HOST);
    // Misspelled hosts, or hosts under a name like `hosts`, have been reported, and are not missing.
    let is_reported = |problem: &Diagnostic| {
        let is_about_hosts = |hint: &String| hint.contains("`host`") || hint.starts_with("write host =");
        problem.place >= header.place && problem.hint.as_ref().is_some_and(is_about_hosts)
    };
    if reader.problems.iter().any(is_reported) {
        return Vec::new();
    }
    if hosts.as_ref().is_none_or(|hosts| hosts.value.is_empty()) && reader.problems.len() == before {
        let missing = Spanned { key: Some("host".to_owned()), ..header.clone() };
        let hint = "write host = \"api.example.com\" below [[rule]]";
        reader.problems.push(Diagnostic::error(&missing, "a rule needs at least one host", hint));
    }
    hosts.map(|hosts| hosts.value).unwrap_or_default()
}

/// The values of a list, without their places.
fn values<T>(list: Option<Spanned<Vec<Spanned<T>>>>) -> Option<Vec<T>> {
    list.map(|list| list.value.into_iter().map(|item| item.value).collect())
}

/// The limits of a rule, or `preset` if it has no list of them.
fn read_limits<'a>(reader: &mut Reader<'a>, table: &Table<'a>, preset: Limits) -> Limits {
    let listed = reader.several(table, &keys::LIMITS);
    let mut limits = if listed.is_some() { Limits::default() } else { preset };
    for item in listed.into_iter().flat_map(|listed| listed.value) {
        if item.value.in_flight.is_some() && (limits.in_flight.is_some() || table.has(keys::IN_FLIGHT.entry.name)) {
            let hint = "write it once, as in in-flight = 20";
            reader.problems.push(Diagnostic::error(&item, "in-flight is said twice", hint));
        }
        limits.limits.extend(item.value.limits);
        limits.calendar.extend(item.value.calendar);
        limits.in_flight = limits.in_flight.or(item.value.in_flight);
    }
    if let Some(in_flight) = reader.one(table, &keys::IN_FLIGHT) {
        limits.in_flight = Some(in_flight.value);
    }
    limits
}

/// Reads which answers, calls and slots requests share under a rule.
fn sharing<'a>(reader: &mut Reader<'a>, table: &Table<'a>, policy: &mut Policy) {
    policy.cache = cache(reader, table);
    policy.free_not_modified = reader.one(table, &keys::NOT_MODIFIED).is_some_and(|free| free.value);
    policy.coalesce = reader.switch(table, &keys::COALESCE).is_some_and(|coalesce| coalesce.value);
    policy.idempotency_keys = reader.one(table, &keys::IDEMPOTENCY_KEYS).and_then(|keep| keep.value);
    let deduplicate = reader.one(table, &keys::DEDUPLICATE).map(|keep| keep.value.unwrap_or_default());
    // A narrower rule may switch off the value of its host's own rule.
    policy.deduplicate = deduplicate.filter(|keep| policy.added.is_some() || !keep.is_zero());
}

/// Reads whether a rule asks for the usage of streams.
fn include_usage<'a>(reader: &mut Reader<'a>, table: &Table<'a>, policy: &Policy) -> bool {
    let Some(asks) = reader.switch(table, &keys::INCLUDE_USAGE).filter(|asks| asks.value) else { return false };
    if policy.usage.is_empty() && !table.has(keys::USAGE.entry.name) {
        let hint = "write preset = \"openai\", or usage = [\"tokens=total_tokens\"]";
        reader.problems.push(Diagnostic::warning(&asks, "nothing counts the usage that streams report", hint));
    }
    true
}

/// Returns whether a rule without limits has a purpose.
fn has_purpose(table: &Table<'_>) -> bool {
    keys::RULE.keys.iter().any(|key| key.purpose && table.has(key.name))
}

/// Reads the settings for storing answers.
fn cache<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<CachePolicy> {
    let (cache, revalidate) = (reader.one(table, &keys::CACHE), reader.one(table, &keys::REVALIDATE));
    let bytes = cache.and_then(|cache| cache.value);
    if let Some(revalidate) = revalidate.as_ref().filter(|always| always.value && bytes.is_none()) {
        let hint = "write cache = \"64MiB\", or leave this out";
        reader.problems.push(Diagnostic::warning(revalidate, "nothing is stored without `cache`", hint));
    }
    let always_revalidates = revalidate.is_some_and(|always| always.value);
    bytes.map(|bytes| CachePolicy { bytes, always_revalidates })
}

/// Reports a margin that exceeds a window. Such a margin makes the window at least twice as long, which is hardly ever
/// meant.
fn too_wide(policy: &Policy, margin: &Spanned<MarginSpec>) -> Option<Diagnostic> {
    let MarginSpec::Fixed(width) = margin.value else { return None };
    let limit = policy.limits.iter().find(|limit| limit.rate.per <= width)?;
    let what = format!("a margin of {} is as long as the window of {limit} or longer", margin.text);
    Some(Diagnostic::warning(margin, what, "write \"auto\", or no more than the jitter on the way to the API"))
}
