//! Whole numbers of flags.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in `range`, whose error says what to write: a bound, or else the `example`.
pub(super) fn whole_number(
    range: RangeInclusive<u64>,
    example: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let (least, most) = (*range.start(), *range.end());
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let hint = match text.parse() {
            Ok(number) if range.contains(&number) => return Ok(number),
            Ok(number) if number < least => format!("write at least {least}"),
            _ if is_number => format!("write at most {most}"),
            _ => format!("write {example}"),
        };
        let bounds = if most == u64::MAX { format!("from {least}") } else { format!("from {least} to {most}") };
        Err(format!("expected a whole number {bounds}, found {text:?}; {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_the_bounds_and_what_to_write() {
        let parse = whole_number(2..=100, 50);
        assert_eq!((parse("2"), parse("100")), (Ok(2), Ok(100)));
        for (text, hint) in [
            ("1", "write at least 2"),
            ("101", "write at most 100"),
            ("99999999999999999999", "write at most 100"),
            ("", "write 50"),
            ("-1", "write 50"),
            ("1.5", "write 50"),
            ("ten", "write 50"),
        ] {
            let expected = format!("expected a whole number from 2 to 100, found {text:?}; {hint}");
            assert_eq!(parse(text), Err(expected));
        }
        assert!(whole_number(1..=u64::MAX, 50)("0").unwrap_err().starts_with("expected a whole number from 1, found"));
    }
}
