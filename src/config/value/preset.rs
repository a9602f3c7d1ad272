//! Presets: documented limits of providers' APIs, in files of `config/presets`.

use super::grammar::{Grammar, ParseHint};

/// A provider's statements about its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct Preset {
    pub(in crate::config) name: &'static str,
    /// Keys of a rule, in TOML.
    pub(in crate::config) text: &'static str,
}

pub(in crate::config) const PRESETS: [Preset; 4] = [
    Preset { name: "openai", text: include_str!("../../../config/presets/openai.toml") },
    Preset { name: "anthropic", text: include_str!("../../../config/presets/anthropic.toml") },
    Preset { name: "github-graphql", text: include_str!("../../../config/presets/github-graphql.toml") },
    Preset { name: "shopify", text: include_str!("../../../config/presets/shopify.toml") },
];

pub(in crate::config) const PRESET: Grammar<Preset> = Grammar {
    expected: "the name of a preset",
    example: "\"openai\", \"anthropic\", \"github-graphql\" or \"shopify\"",
    read: |text| PRESETS.into_iter().find(|preset| preset.name == text).ok_or_else(ParseHint::default),
};
