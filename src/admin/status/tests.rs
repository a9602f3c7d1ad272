//! Claims about `status`.

use super::*;

fn lane(host: &str, waiting: u64) -> LaneStatus {
    LaneStatus { rule: "api".into(), host: host.into(), waiting, ..LaneStatus::default() }
}

#[test]
fn those_who_wait_come_first_and_all_are_counted() {
    let lanes = vec![lane("b", 0), lane("a", 0), lane("c", 7), lane("d", 9)];
    let status = Status { lanes, ..Status::default() }.waiting_first(3);
    let hosts: Vec<&str> = status.lanes.iter().map(|lane| &*lane.host).collect();
    assert_eq!(hosts, ["d", "c", "a"]);
    assert_eq!(status.lanes_total, 4);
}

#[test]
fn the_json_is_the_contract() {
    let limit = LimitStatus {
        limit: "500/min".into(),
        per_second: 8.25,
        used: 3,
        room: 497,
        used_total: 9,
        ends_in_s: Some(60.0),
        ..LimitStatus::default()
    };
    let budget = BudgetStatus {
        name: Some("core".into()),
        left: Some(3.0),
        limit: Some(60.0),
        reset_s: Some(12.5),
        requests: true,
    };
    let own = OwnLimitStatus {
        requests: "GET /search".into(),
        per_second: Some(2.0),
        evidence: "at least 3 refused while at least 9 others were served".into(),
        ..OwnLimitStatus::default()
    };
    let lane = LaneStatus {
        limits: vec![limit],
        at_once: Some(AtOnceStatus { most: 5, evidence: "refused with 6 at once".into() }),
        own_limits: vec![own],
        flows: vec![FlowStatus { client: "10.1.2.3".into(), flow: None, urgency: 3, waiting: 2 }],
        next_slot_s: Some(0.12),
        budgets: vec![budget],
        failures: Some(Failures { failed: 1, of: 50 }),
        oldest_waiting_s: Some(1.5),
        last_error: Some(LastError { detail: "it answered 503".into(), last_s: 0.25 }),
        left_total: 4,
        left_queued_total: 3,
        left_seconds_total: 20.0,
        left_seconds_max: 5.0,
        ..lane("api.example.com", 2)
    };
    let turns = Turns { sent: 8, refused: 2, left: 1, closed: 0, ended: 4 };
    let access_log = Some(AccessLogStatus { lost_total: 3, problem: None });
    let (version, retries_total, slots_saved_total) = ("1.2.3".into(), 7, 5);
    let incident = IncidentStatus {
        kind: "dns_error".into(),
        detail: "could not resolve a".into(),
        hint: "check it".into(),
        blame: "upstream".into(),
        total: 2,
        last_s: 0.5,
    };
    let status = Status {
        version,
        instance: "gateway 127.0.0.1:3128".into(),
        uptime_s: 1.5,
        turns,
        access_log,
        answers: [("200".into(), 3)].into(),
        retries_total,
        slots_saved_total,
        incidents: vec![incident],
        unmatched_rules: vec!["apt".into()],
        lanes: vec![lane],
        ..Status::default()
    };
    let own_limits = serde_json::json!([{
        "requests": "GET /search", "per_second": 2.0, "at_once": null,
        "evidence": "at least 3 refused while at least 9 others were served", "next_slot_s": 0.0,
    }]);
    let expected_lane = serde_json::json!({
        "rule": "api", "host": "api.example.com",
        "limits": [{"limit": "500/min", "per_second": 8.25, "used": 3, "room": 497, "used_total": 9, "ends_in_s": 60.0, "source": "config", "evidence": null, "margin_ms": 0.0, "renewed_in_s": null, "next_free_in_s": null, "all_free_in_s": null, "share": null, "part": null}],
        "at_once": {"most": 5, "evidence": "refused with 6 at once"},
        "own_limits": own_limits,
        "in_flight": 0, "in_flight_limit": null, "waiting": 2, "flows": [{"client": "10.1.2.3", "flow": null, "urgency": 3, "waiting": 2}],
        "oldest_waiting_s": 1.5, "gate": null,
        "budgets": [{"name": "core", "left": 3.0, "limit": 60.0, "reset_s": 12.5, "requests": true}],
        "failures": {"failed": 1, "of": 50}, "last_error": {"detail": "it answered 503", "last_s": 0.25},
        "next_slot_s": 0.12, "drain_eta_s": null, "pace": 0.0, "sent_total": 0, "refused_total": 0,
        "answered_429_total": 0, "left_total": 4, "left_queued_total": 3, "left_seconds_total": 20.0,
        "left_seconds_max": 5.0, "left_after_s": null, "wait_seconds_total": 0.0, "wait_seconds_max": 0.0, "active_s": 0.0,
    });
    let expected = serde_json::json!({
        "version": "1.2.3", "instance": "gateway 127.0.0.1:3128", "uptime_s": 1.5, "draining": false, "fleet": null,
        "config": {
            "file": null, "reloads_total": 0, "last_reload_successful": false, "loaded_s": 0.0, "problems": [],
        },
        "state": null,
        "access_log": {"lost_total": 3, "problem": null},
        "connections": {"client": 0, "upstream": 0}, "tunnels": 0, "certificates": 0,
        "requests": {"answered": 0, "refused": 0, "failed": 0, "left": 0, "tunnelled": 0, "rejected": 0},
        "answers": {"200": 3},
        "interceptions": {"tls": 0, "plain": 0, "untrusted": 0, "failed": 0, "stranger": 0},
        "turns": {"sent": 8, "refused": 2, "left": 1, "closed": 0, "ended": 4},
        "retries_total": 7,
        "slots_saved_total": 5,
        "incidents": [{
            "kind": "dns_error", "detail": "could not resolve a", "hint": "check it", "blame": "upstream", "total": 2,
            "last_s": 0.5,
        }],
        "unmatched_rules": ["apt"],
        "lanes_total": 1,
        "lanes": [expected_lane],
    });
    assert_eq!(serde_json::to_value(status.waiting_first(9)).unwrap(), expected);
}

#[test]
fn the_fullest_limit_is_the_one_that_holds_a_lane_back() {
    let limit = |used, room| LimitStatus { used, room, ..LimitStatus::default() };
    let lane = LaneStatus { limits: vec![limit(1, 9), limit(3, 1), limit(0, 0)], ..lane("a", 0) };
    assert_eq!(lane.used_ratio(), Some(0.75));
    assert_eq!(LaneStatus::default().used_ratio(), None);
}

/// The schema of `name` in the description, and the schema to follow from there.
fn schema<'a>(description: &'a serde_json::Value, schema: &'a serde_json::Value) -> &'a serde_json::Value {
    let alternatives = schema["oneOf"].as_array().into_iter().flatten();
    let reference = alternatives.chain([schema]).find_map(|schema| schema["$ref"].as_str());
    match reference.and_then(|reference| reference.strip_prefix('#')) {
        Some(pointer) => description.pointer(pointer).expect("a schema that is referred to"),
        None => schema,
    }
}

/// Fields of `value` that its schema lacks, and fields of the schema that `value` lacks.
fn differences(
    description: &serde_json::Value,
    of: &serde_json::Value,
    value: &serde_json::Value,
    path: &str,
    found: &mut Vec<String>,
) {
    let of = schema(description, of);
    match value {
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| differences(description, &of["items"], item, path, found));
        }
        // A map, whose names are no fields.
        serde_json::Value::Object(_) if of["additionalProperties"].is_object() => {}
        serde_json::Value::Object(fields) => {
            let described = of["properties"].as_object().unwrap_or_else(|| panic!("{path} has no properties"));
            let missing = fields.keys().filter(|name| !described.contains_key(*name));
            let unknown = described.keys().filter(|name| !fields.contains_key(*name));
            found.extend(missing.map(|name| format!("{path}.{name} is not described")));
            found.extend(unknown.map(|name| format!("{path}.{name} is described, and does not exist")));
            for (name, value) in fields {
                differences(description, &described[name], value, &format!("{path}.{name}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_description_has_each_field_of_a_status_and_no_others() {
    let limit = LimitStatus { share: Some(ShareStatus::default()), ..LimitStatus::default() };
    let rule = AddedRuleStatus { limits: vec![limit.clone()], in_flight_limit: Some(1), ..AddedRuleStatus::default() };
    let lane = LaneStatus {
        https: "turns".into(),
        limits: vec![limit],
        at_once: Some(AtOnceStatus::default()),
        own_limits: vec![OwnLimitStatus::default()],
        rules: vec![rule],
        in_flight_evidence: Some(String::new()),
        in_flight_share: Some(ShareStatus::default()),
        flows: vec![FlowStatus::default()],
        gate: Some(GateStatus { reason: String::new(), opens_in_s: None }),
        budgets: vec![BudgetStatus::default()],
        failures: Some(Failures::default()),
        last_error: Some(LastError::default()),
        ..LaneStatus::default()
    };
    let status = Status {
        state: Some(StateStatus::default()),
        access_log: Some(AccessLogStatus::default()),
        fleet: Some(FleetStatus::default()),
        incidents: vec![IncidentStatus::default()],
        lanes: vec![lane],
        ..Status::default()
    };
    let description: serde_json::Value = serde_json::from_str(include_str!("../api/openapi.json")).unwrap();
    let status = serde_json::to_value(status).unwrap();
    let mut found = Vec::new();
    differences(&description, &description["components"]["schemas"]["Status"], &status, "status", &mut found);
    assert!(found.is_empty(), "{found:#?}");
}
