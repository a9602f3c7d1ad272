//! The content of `/status`, read from the running parts.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use http::Request;

use super::{
    explain,
    fleet::{FleetReport, Talking},
    keeping::{StateReport, Writer},
    lane_view,
    reload::{Configured, ReloadReports},
    steering::Steerer,
    unmatched,
};
use crate::{
    admin::{
        LaneChoice, StatusSource, Steered, Steering,
        detail::{LaneDetail, LaneName, News, Sample, WaitBucket},
        explanation::Explanation,
        status::{AccessLogStatus, Connections, IncidentStatus, Interceptions, LaneStatus, Requests, Status, Turns},
    },
    clock::Instant,
    lane::{JournalEntry, Lane},
    limit::Unit,
    memory::Memory,
    metrics::access_log,
    policy::Rules,
    proxy::{Incident, Proxy, explain_running},
};

/// The data source of the admin pages for a running proxy.
pub(super) struct View {
    proxy: Arc<Proxy>,
    reports: Arc<ReloadReports>,
    state: Option<Arc<StateReport>>,
    fleet: Option<Arc<FleetReport>>,
    steerer: Steerer,
    /// Name of this andante on pages.
    instance: String,
}

// === impl View ===

impl View {
    pub(super) fn new(
        proxy: &Arc<Proxy>,
        configured: &Configured,
        state: Option<&Writer>,
        fleet: Option<&Talking>,
        instance: String,
    ) -> Self {
        Self {
            proxy: proxy.clone(),
            reports: configured.reports.clone(),
            state: state.map(|writer| writer.report.clone()),
            fleet: fleet.map(|talking| talking.report.clone()),
            steerer: Steerer::new(proxy.clone()),
            instance,
        }
    }

    fn lane_status(&self, lane: &Lane, rules: &Rules, ends: &HashMap<Arc<str>, Instant>) -> LaneStatus {
        let https = rules.https_to(lane.host(), lane.policy());
        lane_view::lane_status(lane, Some(https), ends, self.proxy.clock.now())
    }
}

impl StatusSource for View {
    fn memory(&self) -> Option<Arc<Memory>> {
        Some(self.proxy.memory.clone())
    }

    fn status(&self) -> Status {
        let (proxy, now) = (&self.proxy, self.proxy.clock.now());
        // Read before the lanes: by then the requests of a closed connection are counted in their
        // lanes.
        let connections = Connections {
            client: proxy.metrics.client_connections.get(),
            upstream: proxy.metrics.upstream_connections.get(),
        };
        let (ends, rules) = (self.steerer.ends(), proxy.lanes.rules());
        let lanes: Vec<_> = proxy.lanes.all().iter().map(|lane| self.lane_status(lane, &rules, &ends)).collect();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.instance.clone(),
            uptime_s: now.since(proxy.clock.began()).as_secs_f64(),
            draining: proxy.is_draining(),
            config: self.reports.status(),
            state: self.state.as_ref().map(|state| state.status()),
            access_log: access_log::status().map(|(lost_total, problem)| AccessLogStatus { lost_total, problem }),
            fleet: self.fleet.as_ref().map(|fleet| fleet.status()),
            connections,
            tunnels: proxy.tunnels() as i64,
            certificates: proxy.certificates(),
            requests: Requests::counted(&proxy.metrics),
            answers: proxy.metrics.answers(),
            interceptions: Interceptions::counted(&proxy.metrics),
            turns: Turns::counted(&proxy.metrics),
            incidents: proxy.incidents().all().into_iter().map(|incident| incident_status(incident, now)).collect(),
            unmatched_rules: unmatched::rules(proxy).iter().map(|rule| rule.name.to_string()).collect(),
            retries_total: proxy.metrics.retried(),
            slots_saved_total: proxy.metrics.saved(),
            lanes_total: lanes.len() as u64,
            lanes,
        }
    }

    fn sample(&self) -> Sample {
        let mut sample = Sample { requests: Requests::counted(&self.proxy.metrics), ..Sample::default() };
        for lane in self.proxy.lanes.all() {
            let rule = lane.policy().name.clone();
            sample.waits.entry(rule.clone()).or_insert_with(|| wait_buckets(&lane));
            sample.lanes.push((LaneName { rule, host: lane.host().clone() }, lane.activity()));
        }
        sample
    }

    fn lane(&self, name: &LaneName) -> Option<LaneDetail> {
        let lane = self.proxy.lanes.named(&name.rule, &name.host)?;
        let answers = lane.metrics().answers();
        Some(LaneDetail { lane: self.lane_status(&lane, &self.proxy.lanes.rules(), &self.steerer.ends()), answers })
    }

    fn news(&self, after: u64) -> Vec<News> {
        let began = self.proxy.clock.began();
        let news = |JournalEntry { number, at, rule, host, text }: JournalEntry| News {
            number,
            at_s: at.since(began).as_secs_f64(),
            rule: rule.to_string(),
            host: host.to_string(),
            text,
        };
        self.proxy.lanes.journal().after(after).into_iter().map(news).collect()
    }

    fn explain(&self, request: &Request<()>, client: IpAddr) -> Explanation {
        explain::explanation(
            explain_running(&self.proxy, request, client),
            &self.steerer.ends(),
            self.proxy.clock.now(),
        )
    }

    fn units(&self, rule: &str) -> Vec<Unit> {
        self.steerer.units(rule)
    }

    fn steer(&self, lanes: &LaneChoice, steering: &Steering) -> Option<Steered> {
        self.steerer.steer(lanes, steering)
    }

    fn ready(&self) -> bool {
        !self.proxy.is_draining() && self.fleet.as_ref().is_none_or(|fleet| fleet.is_ready())
    }

    fn caveat(&self) -> Option<String> {
        self.fleet.as_ref().and_then(|fleet| fleet.caveat())
    }

    fn unready(&self) -> &'static str {
        if self.proxy.is_draining() { "draining" } else { "without a store that shares its limits" }
    }
}

/// How long requests of the lane's rule waited so far.
fn wait_buckets(lane: &Lane) -> Vec<WaitBucket> {
    lane.metrics().waits().into_iter().map(|(at_most_s, count)| WaitBucket { at_most_s, count }).collect()
}

fn incident_status(incident: Incident, now: Instant) -> IncidentStatus {
    let Incident { kind, detail, hint, blame, total, last } = incident;
    let (kind, blame) = (kind.to_owned(), blame.to_owned());
    IncidentStatus { kind, detail, hint, blame, total, last_s: now.since(last).as_secs_f64() }
}
