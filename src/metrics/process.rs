//! The metrics of the process, under the names in Prometheus's own clients. Linux reports them in /proc.

use std::fs;

use andante_clock as clock;
use prometheus::{
    Gauge, Opts,
    core::{Collector, Desc},
    proto::{Counter, Metric, MetricFamily, MetricType},
};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// Name and help text of each metric, in the order of [`values`].
const NAMES: [[&str; 2]; 7] = [
    ["process_cpu_seconds_total", "Total user and system CPU time spent in seconds."],
    ["process_open_fds", "Number of open file descriptors."],
    ["process_max_fds", "Maximum number of open file descriptors."],
    ["process_virtual_memory_bytes", "Virtual memory size in bytes."],
    ["process_resident_memory_bytes", "Resident memory size in bytes."],
    ["process_start_time_seconds", "Start time of the process since unix epoch in seconds."],
    ["process_threads", "Number of OS threads in the process."],
];

/// Reads the process's figures at each scrape.
pub(super) struct ProcessMetrics(Vec<Gauge>);

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        let gauge = |[name, help]: [&str; 2]| Gauge::with_opts(Opts::new(name, help)).expect("the name is valid");
        Self(NAMES.map(gauge).into())
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().flat_map(Gauge::desc).collect()
    }

    /// Families of the figures that could be read: a missing figure is better than a wrong one.
    fn collect(&self) -> Vec<MetricFamily> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let boot = fs::read_to_string("/proc/stat").ok();
        let read = values(stat.as_deref().unwrap_or_default(), boot.as_deref().unwrap_or_default());
        let mut families = Vec::with_capacity(NAMES.len());
        for (gauge, value) in self.0.iter().zip(read) {
            let Some(value) = value else { continue };
            gauge.set(value);
            families.extend(gauge.collect());
        }
        // The library has no counter whose value can be set.
        if let Some(family) = families.iter_mut().find(|family| family.name() == NAMES[0][0]) {
            let (mut counter, mut metric) = (Counter::default(), Metric::default());
            counter.set_value(self.0[0].get());
            metric.set_counter(counter);
            family.set_metric(vec![metric]);
            family.set_field_type(MetricType::COUNTER);
        }
        families
    }
}

/// The figures of [`NAMES`], by the texts of `/proc/self/stat` and `/proc/stat` (proc(5)).
fn values(stat: &str, boot: &str) -> [Option<f64>; 7] {
    // The second field, the program's name, may hold spaces and parentheses: fields are counted after it, from the third.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let field = |number: usize| after_name.split(' ').nth(number - 3)?.parse::<f64>().ok();
    let booted = boot.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<f64>().ok());
    let ticks_per_second = clock_ticks_per_second() as f64;
    [
        Some(clock::cpu_time().as_secs_f64()),
        // The open folder itself counts while its entries are counted.
        fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64),
        getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
        field(23),
        field(24).map(|pages| pages * page_size() as f64),
        field(22).zip(booted).map(|(ticks, booted)| (ticks / ticks_per_second + booted).floor()),
        field(20),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        // Fields 20, 22, 23 and 24 of 52: threads, start in ticks, bytes, pages.
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 0 200 4096 3 18446744073709551615";
        for name in ["andante", "a) (b"] {
            let [.., virtual_memory, resident, start, threads] =
                values(&format!("7 ({name}) {fields}"), "cpu 1\nbtime 1000\n");
            assert_eq!(virtual_memory, Some(4096.0));
            assert_eq!(resident, Some(3.0 * page_size() as f64));
            assert_eq!(start, Some((1000.0 + 200.0 / clock_ticks_per_second() as f64).floor()));
            assert_eq!(threads, Some(9.0));
        }
    }

    #[test]
    fn a_figure_that_cannot_be_read_is_left_out() {
        let [cpu, open, most, virtual_memory, resident, start, threads] = values("", "");
        assert_eq!([virtual_memory, resident, start, threads], [None; 4]);
        assert!(cpu.is_some() && open.is_some() && most.is_some());
    }
}
