//! The JSON schema of a configuration file, for editors. It is generated from the table of keys.

use serde_json::{Map, Value, json};

use super::keys::{self, Fallback, Form, KeyEntry, Section};

/// The schema in `config/andante.schema.json`.
pub fn json_schema() -> Value {
    let mut schema = table(&keys::TOP);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of andante");
    schema
}

fn table(section: &Section) -> Value {
    let properties: Map<String, Value> =
        section.keys.iter().map(|entry| (entry.name.to_owned(), property(entry))).collect();
    let required: Vec<&str> = section.keys.iter().filter(|entry| entry.is_required()).map(|entry| entry.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn property(entry: &KeyEntry) -> Value {
    let mut schema = match entry.form {
        // A whole number is a duration without its unit; andante reports that, so the schema need not.
        Form::One(_) => json!({ "type": "string" }),
        Form::Number(_) => json!({ "type": ["integer", "string"] }),
        Form::OneOrList(_) => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
        Form::Words(words) => json!({ "enum": words }),
        Form::OneOrTable(words, section) => json!({ "anyOf": [{ "enum": words }, table(section)] }),
        Form::Switch => json!({ "type": "boolean" }),
        Form::Table(section) => table(section),
        Form::Tables(section) => json!({ "type": "array", "items": table(section) }),
    };
    schema["description"] = json!(entry.doc);
    if let Fallback::Value(toml) = entry.default {
        schema["default"] = value(toml);
    }
    schema
}

/// A default of the table, which is in TOML.
fn value(toml: &str) -> Value {
    let mut table: Map<String, Value> = toml::from_str(&format!("value = {toml}")).expect("defaults are TOML");
    table.remove("value").expect("it was just written")
}
