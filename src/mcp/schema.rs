//! JSON Schemas for tools: plain enough for every client and model, and no longer than they must be.

use crate::model::schema::Portable;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// Makes the schema of a tool's arguments: everything in one piece, without references.
pub fn arguments<T: JsonSchema>() -> Map<String, Value> {
    of::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// Makes the schema of a tool's result: what may be left out is not required.
pub fn result<T: JsonSchema>() -> Map<String, Value> {
    of::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn of<T: JsonSchema>(settings: SchemaSettings) -> Map<String, Value> {
    let settings = settings.with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let generator = settings.with_transform(Portable).with_transform(Plain).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    for keyword in ["title", "description", "examples", "$comment"] {
        schema.remove(keyword);
    }
    match schema.to_value() {
        Value::Object(mut map) => {
            // A tool without arguments still takes an object.
            map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            map
        }
        _ => Map::new(),
    }
}

/// Says of an optional field what it is when it is there. Several models' APIs refuse lists of types.
#[derive(Debug, Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|t| t != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                schema.insert("type".into(), only);
            }
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.retain(|w| !w.is_null());
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(Value::Array(choices)) = schema.get_mut(keyword) else { continue };
            choices.retain(|c| c.get("type").and_then(Value::as_str) != Some("null"));
            if let [Value::Object(only)] = choices.as_slice() {
                let only = only.clone();
                schema.remove(keyword);
                for (name, value) in only {
                    if schema.get(&name).is_none() {
                        schema.insert(name, value);
                    }
                }
            }
        }
    }
}
