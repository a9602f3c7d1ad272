//! User input, split into numbers, words and signs.

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Number(Number),
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

/// An exact positive number: `over / under`, which have no common divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) over: u64,
    pub(super) under: u64,
}

/// Larger counts, and numbers with more decimals, are not understood as limits.
const LARGEST: u64 = 1_000_000_000_000;
const MOST_DECIMALS: usize = 3;

/// The tokens of `text`; `None` if it contains anything that no limit needs.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let text = text.to_ascii_lowercase();
    let (mut rest, mut tokens) = (&*text, Vec::new());
    while let Some(first) = rest.chars().next() {
        let joined = rest.len() < text.len() && text.as_bytes()[text.len() - rest.len() - 1].is_ascii_digit();
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
                let end = rest.find(|c: char| !matches!(c, 'a'..='z' | '-' | '_')).unwrap_or(rest.len());
                let word = rest[..end].to_owned();
                tokens.push(if joined { Token::Suffix(word) } else { Token::Word(word) });
                after = &rest[end..];
            }
            _ => return None,
        }
        rest = after;
    }
    Some(tokens)
}

/// Splits off the leading number (`90000`, `90,000`, `90 000`, `1.5`, `.5`, `1e6`). `None` if the number is ambiguous:
/// `10.000` is ten in some countries and ten thousand in others.
fn number(text: &str) -> Option<(Number, &str)> {
    let (mut whole, mut rest) = digits(text);
    let grouped = whole.len() <= 3 && !whole.contains('_');
    while let Some(after) = rest.strip_prefix([',', ' ']).filter(|_| grouped && !whole.is_empty()) {
        let (group, behind) = digits(after);
        if group.len() != 3 {
            break;
        }
        whole.push_str(&group);
        rest = behind;
    }
    let mut decimals = String::new();
    if let Some(after) = rest.strip_prefix('.') {
        (decimals, rest) = digits(after);
        let thousands = decimals.len() == 3 && !["", "0"].contains(&&*whole);
        if decimals.is_empty() || decimals.len() > MOST_DECIMALS || thousands || rest.starts_with('.') {
            return None;
        }
    }
    let mut over: u64 = format!("{whole}{decimals}").replace('_', "").parse().ok()?;
    // A power of ten belongs to the number.
    if let Some((power, after)) = rest.strip_prefix('e').map(digits).filter(|(power, _)| !power.is_empty()) {
        over = over.checked_mul(10_u64.checked_pow(power.parse().ok()?)?)?;
        rest = after;
    }
    let under = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    Some((Number { over, under }.reduced().filter(|number| number.over <= LARGEST)?, rest))
}

fn digits(text: &str) -> (String, &str) {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '_')).unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

// === impl Number ===

impl Number {
    pub(super) const ONE: Self = Self { over: 1, under: 1 };

    /// This number times `times`.
    pub(super) fn times(self, times: u64) -> Option<Self> {
        Self { over: self.over.checked_mul(times)?, ..self }.reduced()
    }

    /// The value, if it is whole.
    pub(super) fn whole(self) -> Option<u64> {
        (self.under == 1).then_some(self.over)
    }

    /// The reduced fraction; `None` for 0.
    fn reduced(self) -> Option<Self> {
        let (mut a, mut b) = (self.over, self.under);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (self.over > 0).then(|| Self { over: self.over / a, under: self.under / a })
    }
}
