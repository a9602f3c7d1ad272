//! Memory that the system grants this process, and memory that it uses. Unknown outside of Linux.

use std::{fs, path::Path};

/// Share of a container's limit, as hardly any other process uses it.
const PERCENT_OF_CGROUP: u64 = 75;
/// Share of the machine's memory, as other programs use it too.
const PERCENT_OF_MACHINE: u64 = 50;
/// Bound if the system does not report its memory.
const OTHERWISE_BYTES: u64 = 1 << 30;

/// Default of `max-memory`: a share of the control group's limit, or of the machine's memory if that is less.
pub fn default_bytes() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| kib(&text, "MemTotal:"));
    let cgroup = cgroup_bytes(&read(Path::new("/proc/self/cgroup")).unwrap_or_default(), read);
    let of = |bytes: Option<u64>, percent| bytes.map(|bytes| bytes / 100 * percent);
    let parts = [of(machine, PERCENT_OF_MACHINE), of(cgroup, PERCENT_OF_CGROUP)];
    parts.into_iter().flatten().min().unwrap_or(OTHERWISE_BYTES)
}

/// Resident memory of this process.
pub(super) fn resident_bytes() -> Option<u64> {
    kib(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Value of the line `name` of a file in `/proc`, converted from KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().trim_end_matches("kB").trim_end().parse().ok().map(|kib: u64| kib * 1024)
}

/// Smallest limit of the control groups that `own`, the text of `/proc/self/cgroup`, names, and of the groups above.
///
/// Version 2 has one hierarchy, `0::/path`, with `memory.max`; version 1 has one for memory, `N:memory:/path`, with
/// `memory.limit_in_bytes` (man 7 cgroups). Inside a container the path may be the host's; the root's limit counts
/// then.
fn cgroup_bytes(own: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let lines = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => Some(("/sys/fs/cgroup", "memory.max", path)),
            _ => controllers.split(',').any(|name| name == "memory").then_some((
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                path,
            )),
        }
    });
    let limits = lines.flat_map(|(root, file, path)| {
        let groups = Path::new(path)
            .ancestors()
            .map(move |group| Path::new(root).join(group.strip_prefix("/").unwrap_or(group)).join(file));
        // "max", and in version 1 a number near 2⁶³, is no limit.
        groups
            .filter_map(|path| read(&path)?.trim().parse().ok())
            .filter(|bytes: &u64| *bytes < 1 << 60)
            .collect::<Vec<_>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(own: &str, files: &[(&str, &str)]) -> Option<u64> {
        cgroup_bytes(own, |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_holds() {
        let files = [
            ("/sys/fs/cgroup/system.slice/andante.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "536870912\n"),
        ];
        assert_eq!(limit("0::/system.slice/andante.service\n", &files), Some(512 << 20));
        assert_eq!(limit("0::/\n", &[("/sys/fs/cgroup/memory.max", "268435456\n")]), Some(256 << 20));
        assert_eq!(limit("0::/\n", &[]), None);
    }

    #[test]
    fn a_group_of_version_1_is_found_by_its_path_or_at_the_root() {
        let own = "11:cpu,cpuacct:/docker/1\n9:memory:/docker/1\n";
        let file = "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes";
        assert_eq!(limit(own, &[(file, "100000000\n")]), Some(100_000_000));
        assert_eq!(limit(own, &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "200000000\n")]), Some(200_000_000));
        assert_eq!(limit(own, &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")]), None);
    }

    #[test]
    fn the_system_says_how_much_is_resident() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(default_bytes() > 32 << 20);
        assert_eq!(kib("MemTotal:       16314340 kB\n", "MemTotal:"), Some(16_314_340 * 1024));
    }
}
