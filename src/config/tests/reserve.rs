//! Claims about the reserve for urgent requests.

use super::{load, problems};
#[test]
fn a_reserve_is_a_part_of_each_limit() {
    let rest = |reserve: &str| {
        let config =
            load(&format!("[[rule]]\nhost = 'a'\nlimits = ['10/s', '100/month in UTC']\nreserve = '{reserve}'"));
        config.rules.iter().next().unwrap().besides_reserve().map(|rest| rest.written_limits())
    };
    assert_eq!(rest("10%").unwrap(), ["9/s", "90/month in UTC"]);
    assert_eq!(rest("33%").unwrap(), ["6/s", "67/month in UTC"]);
    assert_eq!([rest("off"), rest("0%")], [None, None]);
}

#[test]
fn what_is_no_reserve_is_refused() {
    for (reserve, what) in [("'91%'", "from 0% to 90%"), ("'a tenth'", "from 0% to 90%"), ("'10'", "write \"10%\"")] {
        let told = problems(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nreserve = {reserve}"));
        assert!(told.contains(what), "{reserve}: {told}");
    }
    let some =
        "[[rule]]\nhost = 'a'\nlimits = '10/s'\n[[rule]]\nhost = 'a'\npath = '/b'\nlimits = '5/s'\nreserve = '10%'";
    assert!(problems(some).contains("`reserve` is a matter of a whole host"));
}

#[test]
fn a_reserve_of_nothing_is_told() {
    let rule = |text: &str| problems(&format!("[[rule]]\nhost = 'a'\nreserve = '10%'\n{text}"));
    assert!(rule("limits = ['1/120s', '10/s']").contains("nothing is kept of 1/120s"));
    assert!(rule("in-flight = 3").contains("a reserve of 10% has no effect: the rule has no rate limit"));
    assert_eq!(rule("limits = '10/s'"), "");
}

#[test]
fn a_cost_fits_what_is_not_reserved() {
    let rule = |cost| format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nreserve = '10%'\ncost = '{cost}'");
    let told = problems(&rule("10"));
    assert!(told.contains("a request of urgency 2 to 7 that costs 10 fits no window of 9/s"), "{told}");
    load(&rule("9"));
}

#[test]
fn with_a_store_each_andante_has_its_part_of_what_is_not_reserved() {
    let file = |size: &str, limits: &str| {
        format!("store = 'redis://a'\n{size}\n[[rule]]\nhost = 'a'\nlimits = '{limits}'\nreserve = '10%'")
    };
    let told = problems(&file("", "100/s"));
    assert!(told.contains("a store does not share reserve 10%"), "{told}");
    let config = load(&file("fleet-size = 4", "100/s"));
    let rule = config.rules.iter().next().unwrap();
    assert_eq!(
        (rule.written_limits(), rule.besides_reserve().unwrap().written_limits()),
        (vec!["100/s".into()], vec!["22/s".into()])
    );
    // Nine tenths of 4 are 3, which is less than 1 for each of four andantes.
    assert!(problems(&file("fleet-size = 4", "4/s")).contains("cannot be divided among 4"));
}
