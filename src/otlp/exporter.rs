//! The tasks that export: one for spans, in batches, and one for metrics, at an interval.

use std::{mem, sync::Arc, time::Duration};

use prometheus::{IntCounterVec, Opts};
use tokio::{
    sync::{
        mpsc::Receiver,
        watch::{self, Sender},
    },
    task::JoinSet,
    time::{MissedTickBehavior, interval_at, timeout},
};
use tracing::debug;

use super::{
    collector::{Collector, ExportFailure},
    messages::Resource,
    metric_data::{self, Counted},
    outage::Outage,
    resource::resource,
    span_data,
};
use crate::{
    clock::Clock,
    config::OtlpConfig,
    dial::Dialer,
    error::in_one_line,
    metrics::Metrics,
    tls::TlsClient,
    trace::{Span, Tracer},
};

/// First and longest pause before a failed export is retried.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time that the end of the process waits for the last export: a hanging collector must not delay a command.
const LAST_EXPORT: Duration = Duration::from_secs(3);

/// A configured exporter, before it is started.
pub struct Exporter {
    config: OtlpConfig,
    metrics: Metrics,
    counters: Counters,
    spans: Option<Receiver<Span>>,
}

/// The running tasks.
pub struct Exporting {
    stop: Sender<bool>,
    tasks: JoinSet<()>,
}

/// Counters of spans, by outcome.
#[derive(Clone)]
struct Counters(IntCounterVec);

/// Task that sends batches of spans.
struct SpanTask {
    collector: Collector,
    outage: Outage,
    counters: Counters,
    resource: Resource,
    clock: Clock,
    spans: Receiver<Span>,
    batch: usize,
    delay: Duration,
}

/// Task that sends all metrics.
struct MetricTask {
    collector: Collector,
    outage: Outage,
    resource: Resource,
    since: Duration,
    clock: Clock,
    metrics: Metrics,
}

// === impl Exporter ===

impl Exporter {
    /// Exporter for `config`, and the tracer of its spans if it exports any.
    pub fn new(config: OtlpConfig, metrics: &Metrics) -> (Self, Option<Arc<Tracer>>) {
        let counters = Counters::new();
        metrics.register(Box::new(counters.0.clone()));
        let (tracer, spans) = config
            .traces
            .is_some()
            .then(|| Tracer::new(config.sampler, config.queue, counters.0.with_label_values(&["dropped"])))
            .unzip();
        let endpoints = config.traces.iter().chain(&config.metrics);
        let collectors = endpoints.flat_map(|place| [place.origin.to_string(), place.origin.authority()]).collect();
        let tracer = tracer.map(|tracer| Arc::new(tracer.exempting(collectors)));
        (Self { config, metrics: metrics.clone(), counters, spans }, tracer)
    }

    /// Starts exporting. Must be called on a tokio runtime.
    pub fn start(self, clock: Clock, dialer: &Dialer, tls: &TlsClient) -> Exporting {
        let Self { config, metrics, counters, spans } = self;
        let (stop, stopped) = watch::channel(false);
        let resource = resource(&config.resource);
        let collector = |endpoint| Collector::new(endpoint, dialer.clone(), tls.clone(), config.timeout);
        let mut tasks = JoinSet::new();
        if let Some((endpoint, spans)) = config.traces.zip(spans) {
            let task = SpanTask {
                collector: collector(endpoint),
                outage: Outage::new(clock, "traces"),
                counters,
                resource: resource.clone(),
                clock,
                spans,
                batch: config.batch,
                delay: config.delay,
            };
            tasks.spawn(task.run(stopped.clone()));
        }
        if let Some(endpoint) = config.metrics {
            let (collector, since) = (collector(endpoint), clock.time_of_day());
            let outage = Outage::new(clock, "metrics");
            let task = MetricTask { collector, outage, resource, since, clock, metrics };
            tasks.spawn(task.run(config.interval, stopped));
        }
        Exporting { stop, tasks }
    }
}

// === impl Exporting ===

impl Exporting {
    /// Sends the remaining data, with a short timeout.
    pub async fn finish(mut self) {
        // Ended tasks need no signal.
        let _ = self.stop.send(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(LAST_EXPORT, ended).await.is_err() {
            debug!("the last export did not end in time");
        }
    }
}

// === impl Counters ===

impl Counters {
    fn new() -> Self {
        let opts = Opts::new("andante_otlp_spans_total", "Spans of traces, by what became of them.");
        let counters = IntCounterVec::new(opts, &["outcome"]).expect("names and labels are valid");
        for outcome in ["exported", "rejected", "dropped"] {
            counters.with_label_values(&[outcome]);
        }
        Self(counters)
    }

    fn add(&self, outcome: &str, count: u64) {
        self.0.with_label_values(&[outcome]).inc_by(count);
    }
}

// === impl SpanTask ===

impl SpanTask {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            let mut batch = Vec::new();
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = self.fill(&mut batch) => {}
            }
            self.export(batch, &mut stopped).await;
        }
        self.spans.close();
        let mut rest = Vec::new();
        while self.spans.recv_many(&mut rest, self.batch).await > 0 {
            self.export(mem::take(&mut rest), &mut stopped).await;
        }
    }

    /// Collects spans until the batch is full or the delay is over. If this future is dropped, received spans stay in
    /// `batch`.
    async fn fill(&mut self, batch: &mut Vec<Span>) {
        self.spans.recv_many(batch, self.batch).await;
        let more = async {
            while batch.len() < self.batch && self.spans.recv_many(batch, self.batch - batch.len()).await > 0 {}
        };
        // The spans that arrived by then are a batch.
        let _ = timeout(self.delay, more).await;
    }

    /// Sends a batch, with retries if they may help, until it is accepted. Sends it once if the process is about to
    /// end.
    async fn export(&mut self, batch: Vec<Span>, stopped: &mut watch::Receiver<bool>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let body: bytes::Bytes = span_data::encode(&self.resource, self.clock.epoch(), &batch).into();
        drop(batch);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.collector.export(body.clone()).await {
                Ok(rejected) => {
                    self.outage.on_success(&self.collector.name());
                    self.counters.add("exported", count.saturating_sub(rejected));
                    return self.counters.add("rejected", rejected);
                }
                Err(ExportFailure { is_retryable, error }) => {
                    self.outage.on_failure(&self.collector.name(), &in_one_line(&*error));
                    if !is_retryable {
                        return self.counters.add("rejected", count);
                    }
                }
            }
            let ends = timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_ok();
            if ends {
                return self.counters.add("dropped", count);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

// === impl MetricTask ===

impl MetricTask {
    async fn run(mut self, interval: Duration, mut stopped: watch::Receiver<bool>) {
        let mut ticks = interval_at(self.clock.to_tokio(self.clock.now() + interval), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let ends = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => true,
                _ = ticks.tick() => false,
            };
            self.export().await;
            if ends {
                return;
            }
        }
    }

    async fn export(&mut self) {
        let counted = Counted { since: self.since, until: self.clock.time_of_day() };
        let (metrics, resource) = (self.metrics.clone(), self.resource.clone());
        // On a thread of its own, because counting thousands of lanes takes a moment.
        let encoded =
            tokio::task::spawn_blocking(move || metric_data::encode(&resource, counted, &metrics.gather())).await;
        let Ok(body) = encoded else { return };
        match self.collector.export(body.into()).await {
            Ok(_) => self.outage.on_success(&self.collector.name()),
            Err(failure) => {
                self.outage.on_failure(&self.collector.name(), &in_one_line(&*failure.error));
            }
        }
        // The collector may close the connection meanwhile, and the next export on it would be lost.
        self.collector.disconnect();
    }
}
