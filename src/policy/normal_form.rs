//! The normal form in which requests are compared with rules, and their keys with each other.
//!
//! Clients may spell one request in many ways. Two spellings that servers read alike are compared alike, so that none of them
//! has a budget of its own. Only the comparison uses this form: forwarded requests keep their bytes. Each function takes time
//! linear in its input, never fails, and changes nothing that is in normal form already.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Value of a key that a request names several times: servers differ in the one that they read. All such requests share
/// one budget.
pub const SEVERAL: &[u8] = b"(several)";

/// A path in segments, without empty ones, `.` and `..`, and with escapes undone.
pub type Segments<'a> = SmallVec<[Cow<'a, str>; 8]>;

/// The ways in which servers read a path.
///
/// By RFC 3986 an escaped slash and the text after a `;` are a part of their segment. Other servers treat an escaped
/// slash or a backslash as a separator, drop the text after `;`, or undo escapes twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReadings<'a> {
    strict: Segments<'a>,
    /// The lenient reading, if it differs.
    lenient: Option<Segments<'a>>,
}

// === impl PathReadings ===

impl<'a> PathReadings<'a> {
    /// The readings of `path`, which must have no query.
    pub fn of(path: &'a str) -> Self {
        let mut strict = Segments::new();
        path.split('/').for_each(|segment| push(&mut strict, unescaped(segment)));
        let ambiguous = path.bytes().any(|byte| matches!(byte, b'%' | b';' | b'\\'));
        let lenient = ambiguous.then(|| lenient(path)).filter(|lenient| *lenient != strict);
        Self { strict, lenient }
    }

    /// All readings, the strict one first.
    pub fn iter(&self) -> impl Iterator<Item = &Segments<'a>> {
        std::iter::once(&self.strict).chain(&self.lenient)
    }

    /// The reading by RFC 3986.
    pub fn strict(&self) -> &Segments<'a> {
        &self.strict
    }
}

fn lenient<'a>(path: &str) -> Segments<'a> {
    let mut segments = Segments::new();
    for segment in unescaped(&unescaped(path)).split(['/', '\\']) {
        let name = segment.split([';', '\0']).next().unwrap_or_default();
        push(&mut segments, name.trim_end().to_owned().into());
    }
    segments
}

fn push<'a>(segments: &mut Segments<'a>, segment: Cow<'a, str>) {
    match &*segment {
        "" | "." => {}
        ".." => _ = segments.pop(),
        _ => segments.push(segment),
    }
}

/// Undoes the escapes of `text`. Malformed escapes stay.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    match unescaped_bytes(text.as_bytes()) {
        Cow::Borrowed(_) => text.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

fn unescaped_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes.into()
}

/// The value of the parameter `name` of a query. Escapes in names and values are undone, and `+` is a blank.
pub fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    let parameters = query.as_bytes().split(|byte| *byte == b'&').map(|parameter| {
        let end = parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len());
        (&parameter[..end], parameter.get(end + 1..).unwrap_or_default())
    });
    one_of(parameters.filter(|(found, _)| *form_text(found) == *name.as_bytes()).map(|(_, value)| form_text(value)))
}

/// Text of a form (`application/x-www-form-urlencoded`).
fn form_text(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return unescaped_bytes(text);
    }
    let blanks: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    unescaped_bytes(&blanks).into_owned().into()
}

/// Value of the field `name` with these `lines`. Each blank is one space, and blanks at either end are dropped. The
/// scheme of a credential is in one case (RFC 9110 §5.5, §11.1).
pub fn field<'a>(name: &str, lines: impl Iterator<Item = &'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let credential = matches!(name, "authorization" | "proxy-authorization");
    one_of(lines.map(|line| if credential { self::credential(line) } else { with_single_blanks(line) }))
}

/// A credential (RFC 9110 §11.4) with its scheme in the usual case: `Bearer`.
pub fn credential(line: &[u8]) -> Cow<'_, [u8]> {
    let line = with_single_blanks(line);
    // A bare key has no scheme, and its case matters.
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or_default();
    let is_written_so = |scheme: &[u8]| match scheme {
        [first, rest @ ..] => !first.is_ascii_lowercase() && !rest.iter().any(u8::is_ascii_uppercase),
        [] => true,
    };
    if is_written_so(&line[..end]) {
        return line;
    }
    let mut line = line.into_owned();
    line[..end].make_ascii_lowercase();
    line[..1].make_ascii_uppercase();
    line.into()
}

fn with_single_blanks(line: &[u8]) -> Cow<'_, [u8]> {
    let line = line.trim_ascii();
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    if !line.contains(&b'\t') && !line.windows(2).any(|pair| pair == b"  ") {
        return line.into();
    }
    let words: Vec<&[u8]> = line.split(is_blank).filter(|word| !word.is_empty()).collect();
    words.join(&b' ').into()
}

/// The value that all of `values` have in common, or [`SEVERAL`] if they differ.
fn one_of<'a>(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Option<Cow<'a, [u8]>> {
    let first = values.next()?;
    if values.any(|other| other != first) { Some(SEVERAL.into()) } else { Some(first) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn readings(path: &str) -> Vec<String> {
        PathReadings::of(path).iter().map(|segments| format!("/{}", segments.join("/"))).collect()
    }

    fn value(query: &str) -> Option<String> {
        parameter(query, "tenant").map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    fn key(lines: &[&str]) -> String {
        let value = field("authorization", lines.iter().map(|line| line.as_bytes()));
        String::from_utf8_lossy(&value.unwrap()).into_owned()
    }

    #[test]
    fn path_that_all_servers_read_alike_has_one_reading() {
        // RFC 3986 §6.2.2.2, §6.2.2.3.
        for path in
            ["/search", "//search", "/search/", "/%73earch", "/%73%45arch/../search", "/x/../search", "/./search"]
        {
            assert_eq!(readings(path), ["/search"], "{path}");
        }
        assert_eq!(readings("/SEARCH"), ["/SEARCH"], "paths are case-sensitive (RFC 3986 §6.2.2.1)");
        assert_eq!(readings("/../.."), ["/"]);
    }

    #[test]
    fn path_that_servers_read_differently_has_both_readings() {
        for (path, strict, lenient) in [
            ("/search;v=1", "/search;v=1", "/search"),
            ("/search%3bv=1", "/search;v=1", "/search"),
            ("/free/..%2fapi", "/free/../api", "/api"),
            ("/free/..%2Fapi", "/free/../api", "/api"),
            ("/free/..;/api", "/free/..;/api", "/api"),
            ("/free/..%5capi", "/free/..\\api", "/api"),
            ("/free/..\\api", "/free/..\\api", "/api"),
            ("/free/%252e%252e/api", "/free/%2e%2e/api", "/api"),
            ("/search%00", "/search\0", "/search"),
            ("/search%20", "/search ", "/search"),
        ] {
            assert_eq!(readings(path), [strict, lenient], "{path}");
        }
        assert_eq!(readings("/a%zz%"), ["/a%zz%"], "malformed escapes stay");
    }

    #[test]
    fn parameter_is_read_as_forms_are() {
        for query in ["tenant=acme", "tenant=%61cme", "%74enant=acme", "a=b&tenant=acm%65", "tenant=acme&tenant=%61cme"]
        {
            assert_eq!(value(query).as_deref(), Some("acme"), "{query}");
        }
        assert_eq!((value("tenant=a+b"), value("tenant=a%20b")), (Some("a b".into()), Some("a b".into())));
        assert_eq!((value("tenant"), value("Tenant=a"), value("")), (Some(String::new()), None, None));
        assert_eq!(value("tenant=a&tenant=b"), value("tenant=c&tenant=a"));
    }

    #[test]
    fn credential_is_one_whatever_its_case_of_scheme_and_blanks() {
        for line in ["Bearer k1", "bearer k1", "BEARER  k1", " Bearer\tk1 "] {
            assert_eq!(key(&[line]), "Bearer k1", "{line}");
        }
        assert_ne!(key(&["Bearer K1"]), key(&["Bearer k1"]));
        assert_ne!(key(&["K1"]), key(&["k1"]));
        assert_eq!(key(&["Bearer a", "Bearer b"]), key(&["Bearer b", "Bearer a"]));
        assert_eq!(key(&["Bearer a", "bearer  a"]), "Bearer a");
        let other = field("x-api-key", [&b"bEARER  k"[..]].into_iter());
        assert_eq!(other.as_deref(), Some(&b"bEARER k"[..]));
    }

    proptest! {
        #[test]
        fn normal_form_is_its_own_normal_form(path in "[/a.;\\\\% 0-9A-Fé]{0,40}", line in "[ \ta-zA-Z=]{0,30}") {
            for reading in readings(&path).into_iter().skip(1) {
                if !reading.contains('%') {
                    prop_assert_eq!(readings(&reading), [&*reading]);
                }
            }
            let once = credential(line.as_bytes()).into_owned();
            prop_assert_eq!(credential(&once), &*once);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".{0,60}", name in ".{0,3}") {
            let _ = (readings(&text), parameter(&text, &name), field(&name, text.split(',').map(str::as_bytes)));
        }
    }
}
