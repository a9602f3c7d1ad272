//! User input, split into numbers, words and signs.

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A positive number, in thousandths.
    Number(u64),
    /// Small letters, with `-` and `_` within.
    Word(String),
    /// A word without a space before it: the `k` of `90k`.
    Suffix(String),
    Slash,
    /// `=` or `:`.
    Equals,
    /// Separator between limits.
    Break,
}

/// Larger numbers are not understood as limits.
const LARGEST_THOUSANDTHS: u64 = 1_000_000_000_000_000;

/// The tokens of `text`; `None` if it contains anything that no limit needs.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let text = text.to_ascii_lowercase();
    let (mut rest, mut tokens) = (&*text, Vec::new());
    while let Some(first) = rest.chars().next() {
        let joined = text[..text.len() - rest.len()].ends_with(|before: char| before.is_ascii_digit());
        let mut after = &rest[first.len_utf8()..];
        match first {
            ' ' | '\t' | '(' | ')' => {}
            '/' => tokens.push(Token::Slash),
            '=' | ':' => tokens.push(Token::Equals),
            ';' | '&' | '+' | ',' => tokens.push(Token::Break),
            '0'..='9' | '.' => {
                let (number, behind) = number(rest)?;
                tokens.push(Token::Number(number));
                after = behind;
            }
            'a'..='z' => {
                let (word, behind) = rest.split_at(end(rest, |c| matches!(c, 'a'..='z' | '-' | '_')));
                tokens.push(if joined { Token::Suffix(word.into()) } else { Token::Word(word.into()) });
                after = behind;
            }
            _ => return None,
        }
        rest = after;
    }
    Some(tokens)
}

/// Splits off the leading number (`90000`, `90,000`, `90 000`, `1.5`, `.5`, `1e6`), in thousandths. `None` if the number
/// is ambiguous: `10.000` is ten in some countries and ten thousand in others.
fn number(text: &str) -> Option<(u64, &str)> {
    let (whole, mut rest) = digits(text);
    let (grouped, mut whole) = (!whole.is_empty() && whole.len() <= 3 && !whole.contains('_'), whole.to_owned());
    while let Some((group, after)) = rest.strip_prefix([',', ' ']).map(digits)
        && grouped
        && group.len() == 3
    {
        whole.push_str(group);
        rest = after;
    }
    let mut decimals = "";
    if let Some((point, after)) = rest.strip_prefix('.').map(digits) {
        let unclear = point.len() == 3 && !["", "0"].contains(&&*whole) || point.contains('_');
        if !(1..=3).contains(&point.len()) || unclear || after.starts_with('.') {
            return None;
        }
        (decimals, rest) = (point, after);
    }
    let mut thousandths: u64 = format!("{whole}{decimals:0<3}").replace('_', "").parse().ok()?;
    // A power of ten belongs to the number.
    if let Some((power, after)) = rest.strip_prefix('e').map(digits).filter(|(power, _)| !power.is_empty()) {
        thousandths = thousandths.checked_mul(10_u64.checked_pow(power.parse().ok()?)?)?;
        rest = after;
    }
    (1..=LARGEST_THOUSANDTHS).contains(&thousandths).then_some((thousandths, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(end(text, |c| matches!(c, '0'..='9' | '_')))
}

/// Length of the prefix of `text` that consists of such characters.
fn end(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}
