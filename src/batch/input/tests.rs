use std::io::Write as _;

use super::*;

fn read(format: Format, defaults: &Defaults, text: &str) -> Vec<Result<Item, String>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let input = Input::open(file.path(), format, defaults).unwrap();
    input.map(|item| item.map_err(|error| error.to_string())).collect()
}

fn one(text: &str) -> Result<Item, String> {
    let defaults = Defaults { base: Some("https://api.openai.com/v1".parse().unwrap()), ..Defaults::default() };
    read(Format::JsonLines, &defaults, text).remove(0)
}

#[test]
fn a_line_of_openais_batch_files_is_read_as_it_is() {
    // https://platform.openai.com/docs/guides/batch
    let line = r#"{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o", "max_tokens": 1000, "x": 12345678901234567890}}"#;
    let item = one(line).unwrap();
    assert_eq!(item.id, Id { member: "custom_id", name: "request-1".into() });
    assert_eq!((item.method.as_str(), item.url.as_str()), ("POST", "https://api.openai.com/v1/chat/completions"));
    assert_eq!(item.headers["content-type"], "application/json");
    let expected = r#"{"model": "gpt-4o", "max_tokens": 1000, "x": 12345678901234567890}"#;
    assert_eq!(item.body, expected, "byte for byte: no number loses a digit");
    assert!(!item.is_repeatable());
}

#[test]
fn an_address_that_no_request_can_have_is_a_mistake() {
    let long = format!("https://a.example/{}", "x".repeat(70_000));
    let why = read(Format::Urls, &Defaults::default(), &long).remove(0).unwrap_err();
    assert!(why.starts_with("line 1: `url`") && why.len() < 200, "{why}");
}

#[test]
fn members_become_fields() {
    let line = r#"{"id": 7, "url": "https://a.example/", "headers": {"X-A": ["1", "2"], "Idempotency-Key": "k"}, "priority": 0, "cost": 3, "flow": "night", "body": "text"}"#;
    let item = one(line).unwrap();
    assert_eq!((item.id.member, item.id.name.as_str(), item.method.as_str()), ("id", "7", "POST"));
    assert_eq!(item.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    let field = |name: &str| item.headers[name].to_str().unwrap().to_owned();
    assert_eq!([field("priority"), field("andante-cost"), field("andante-flow")], ["u=0", "3", "night"]);
    assert_eq!(item.body, "text");
    assert!(item.is_repeatable() && !item.headers.contains_key("content-type"));
}

#[test]
fn what_is_no_request_is_told_with_its_line() {
    let wrong = |line: &str| one(line).unwrap_err();
    assert!(wrong(r#"{"url": "https://a.example/", "hedaers": {}}"#).contains("unknown field `hedaers`"));
    assert_eq!(wrong("{\"url\": 5}"), "line 1: `url`: expected a text, found a number");
    assert_eq!(wrong("{}"), "line 1: it has no `url`");
    assert!(wrong(r#"{"url": "ftp://a.example/"}"#).contains("has to be http or https"));
    assert!(wrong(r#"{"url": "https://u:secret@a.example/"}"#).contains("Authorization"));
    assert!(!wrong(r#"{"url": "https://u:secret@a.example/"}"#).contains("secret"));
    assert!(wrong(r#"{"url": "https://a.example/", "priority": 8}"#).contains("0 to 7"));
    assert!(wrong(r#"{"url": "https://a.example/", "headers": {"Host": "b"}}"#).contains("leave it out"));
    assert!(wrong(r#"{"url": "https://a.example/", "method": "CONNECT"}"#).contains("cannot be sent"));
    assert!(wrong(r#"{"url": "https://a.example/", "id": 1, "custom_id": "a"}"#).contains("write one"));
    let relative = read(Format::Urls, &Defaults::default(), "\n/x\n").remove(0).unwrap_err();
    assert!(relative.starts_with("line 2:") && relative.contains("--base-url"), "{relative}");
}

#[test]
fn a_mistake_names_its_line_and_member_and_tells_no_value() {
    // Each line has a credential in a wrong place, as users write it.
    let url = r#""url": "https://a.example/""#;
    for (line, member) in [
        (format!(r#"{{{url}, "headers": "Authorization: Bearer s3cret"}}"#), "`headers`"),
        (format!(r#"{{{url}, "headers": ["Authorization: Bearer s3cret"]}}"#), "`headers`"),
        (format!(r#"{{{url}, "headers": {{"Authorization: Bearer s3cret": ""}}}}"#), "`headers`"),
        (format!(r#"{{{url}, "headers": {{"Authorization": {{"Bearer": "s3cret"}}}}}}"#), "`headers.authorization`"),
        (format!(r#"{{{url}, "headers": {{"Authorization": ["s3cret", 5]}}}}"#), "`headers.authorization`"),
        (format!(r#"{{{url}, "headers": {{"Authorization": "s3cret\n"}}, "priority": "s3cret"}}"#), "`priority`"),
        (format!(r#"{{{url}, "headers": {{"X-A": "s3cret\u0000"}}}}"#), "x-a"),
        (format!(r#"{{{url}, "headers": {{"Proxy-Authorization": "s3cret"}}}}"#), "proxy-authorization"),
        (format!(r#"{{{url}, "body": "s3cret\ud800"}}"#), "`body`"),
        (r#"{"url": ["https://u:s3cret@a.example/?key=s3cret"]}"#.into(), "`url`"),
        (r#"{"url": "https://u:s3cret@a.example/?key=s3cret"}"#.into(), "`url`"),
        (r#"{"url": "s3cret:x@a.example/?key=s3cret"}"#.into(), "`url`"),
        (r#"{"url": "https://[s3cret]/?key=s3cret"}"#.into(), "`url`"),
        (format!(r#"{{{url}, "flow": ["s3cret"]}}"#), "`flow`"),
        (format!(r#"{{{url}, "cost": {{"s3cret": 1}}}}"#), "`cost`"),
        (r#""https://u:s3cret@a.example/""#.into(), "expected an object"),
        (format!(r#"{{{url}, "headers": {{"Authorization": "Bearer s3cret" "X": 1}}}}"#), "at column"),
    ] {
        let told = one(&line).map(|item| item.url).unwrap_err();
        assert!(told.starts_with("line 1: ") && told.contains(member), "{line}: {told}");
        assert!(!told.contains("s3cret"), "{line}: {told}");
    }
    let address = "https://a.example/?key=s3cret&id={id";
    let template = Defaults { template: Some(address.into()), ..Defaults::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let told = Input::open(file.path(), Format::Csv, &template).err().unwrap().to_string();
    assert!(told.contains("--url") && !told.contains("s3cret"), "{told}");
    let told = header("Bearer s3cret", "").unwrap_err();
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn urls_are_named_by_their_lines() {
    let items = read(Format::Urls, &Defaults::default(), "https://a.example/1\n\n# no\n https://a.example/2 \r\n");
    let items: Vec<_> = items.into_iter().map(|item| item.unwrap()).map(|item| (item.id.name, item.url)).collect();
    let url = |text: &str| text.parse::<Url>().unwrap();
    assert_eq!(items, [("1".into(), url("https://a.example/1")), ("4".into(), url("https://a.example/2"))]);
}

#[test]
fn a_line_that_is_no_url_says_how_the_file_is_read() {
    let text = "https://a.example/1\n{\"url\": \"https://u:s3cret@a.example/2\"}\nnot a url, but s3cret\n";
    let wrong = |defaults: &Defaults| -> Vec<String> {
        read(Format::Urls, defaults, text).into_iter().filter_map(Result::err).collect()
    };
    let told = wrong(&Defaults::default());
    assert_eq!(told.len(), 2, "{told:?}");
    for (told, words) in told.iter().zip(["line 2: this is JSON", "line 3: this is no URL"]) {
        assert!(told.starts_with(words) && told.contains("read as one URL a line"), "{told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
    assert!(told[0].contains("--format jsonl") && told[1].contains("--base-url"), "{told:?}");
    let base = Defaults { base: Some("https://a.example/".parse().unwrap()), ..Defaults::default() };
    assert_eq!(wrong(&base), told[..1], "JSON is no relative URL either");
}

#[test]
fn rows_of_a_table_fill_an_address() {
    let template = |text: &str| Defaults { template: Some(text.into()), ..Defaults::default() };
    let items = read(Format::Csv, &template("https://a.example/{n}"), "id,n\nx,1\ny,\"a b\"\n");
    let items: Vec<_> =
        items.into_iter().map(|item| item.unwrap()).map(|item| (item.id.name, item.url.to_string())).collect();
    assert_eq!(
        items,
        [("x".into(), "https://a.example/1".into()), ("y".into(), "https://a.example/a%20b".to_string())]
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"id,n\n").unwrap();
    let unknown = Input::open(file.path(), Format::Csv, &template("https://a.example/{m}")).err().unwrap();
    assert_eq!(unknown.to_string(), "there is no column \"m\"; there are: id, n");
}

#[test]
fn lines_of_a_table_are_counted_alike_for_every_line_end() {
    let text = "id,n\nx,1\n\ny,\"two\nlines\"\nragged\nz,3\n";
    let template = Defaults { template: Some("https://a.example/{n}".into()), ..Defaults::default() };
    for text in [text.to_owned(), text.replace('\n', "\r\n")] {
        for bom in ["", "\u{feff}"] {
            let items = read(Format::Csv, &template, &format!("{bom}{text}"));
            let lines: Vec<_> =
                items.iter().map(|item| item.as_ref().map(|item| item.line).map_err(|e| &e[..8])).collect();
            assert_eq!(lines, [Ok(2), Ok(4), Err("line 6: "), Ok(7)], "{bom:?} {text:?}");
        }
    }
}

#[test]
fn a_table_in_utf16_says_how_to_convert_it() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let utf16: Vec<u8> = "\u{feff}id,n\nx,1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    file.write_all(&utf16).unwrap();
    let template = Defaults { template: Some("https://a.example/{n}".into()), ..Defaults::default() };
    let told = Input::open(file.path(), Format::Csv, &template).err().unwrap().to_string();
    assert!(told.starts_with("line 1: ") && told.contains("iconv -f utf-16"), "{told}");
}

#[test]
fn a_column_that_is_the_whole_address_is_taken_as_it_is() {
    let template = |text: &str| Defaults { template: Some(text.into()), ..Defaults::default() };
    let table = "url\nhttps://a.example/x?y=1&z=%20\n";
    for whole in ["{url}", " { url } "] {
        let item = read(Format::Csv, &template(whole), table).remove(0).unwrap();
        assert_eq!(item.url.as_str(), "https://a.example/x?y=1&z=%20", "{whole:?}");
    }
    // A place that is part of an address is encoded, so its value stays in that part.
    let part = read(Format::Csv, &template("https://b.example/?u={url}"), table).remove(0).unwrap();
    assert_eq!(part.url.as_str(), "https://b.example/?u=https%3A%2F%2Fa.example%2Fx%3Fy%3D1%26z%3D%2520");
}
