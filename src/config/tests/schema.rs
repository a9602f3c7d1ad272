//! Claims about `config/andante.schema.json`, by which editors complete and check a configuration.

use super::super::schema::json_schema;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/andante.schema.json");

/// `BLESS=1 cargo test --lib schema` rewrites the file.
#[test]
fn the_schema_is_what_the_table_of_keys_makes() {
    let made = format!("{:#}\n", json_schema());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(committed == made, "config/andante.schema.json is not up to date: BLESS=1 cargo test --lib schema");
}

/// A small part of JSON Schema: the part that the schema uses.
fn allows(schema: &serde_json::Value, value: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Bool, Number, Object, String};
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().any(|choice| allows(choice, value));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    let of_type = |name: &str| {
        schema["type"] == name || schema["type"].as_array().is_some_and(|types| types.contains(&name.into()))
    };
    match value {
        String(_) => of_type("string"),
        Number(_) => of_type("integer"),
        Bool(_) => of_type("boolean"),
        Array(items) => of_type("array") && items.iter().all(|item| allows(&schema["items"], item)),
        Object(entries) => {
            let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
            of_type("object")
                && required.iter().all(|key| key.as_str().is_some_and(|key| entries.contains_key(key)))
                && entries
                    .iter()
                    .all(|(key, value)| schema["properties"].get(key).is_some_and(|property| allows(property, value)))
        }
        serde_json::Value::Null => false,
    }
}

#[test]
fn the_schema_allows_the_files_in_config_and_no_slips() {
    let schema = json_schema();
    let read = |text: &str| toml::from_str::<serde_json::Value>(text).unwrap();
    for text in [
        include_str!("../../../config/minimal.toml"),
        include_str!("../../../config/full.toml"),
        "threads = 4\nretry = { body = '64KiB' }\nclients = 'any'\ndns = ['10.0.0.2']",
    ] {
        assert!(allows(&schema, &read(text)), "{text}");
    }
    for text in ["listne = 'a'", "log = 'xml'", "[[rule]]\nlimits = '1/s'", "[timeouts]\nconnect = true", "drain = 30"]
    {
        assert!(!allows(&schema, &read(text)), "{text}");
    }
}
