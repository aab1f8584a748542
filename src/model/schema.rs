//! The JSON Schemas of everything that is written to disk, made from the types: the public contract.
//!
//! `queue-schema/` holds them as files; a test compares the two. What users write (tasks, batches,
//! profiles, configuration) refuses unknown fields; records that we write let them pass, so that an
//! older reader can read a newer spool.

use super::config::{Config, RepoConfig};
use super::event::Event;
use super::fact::Fact;
use super::profile::Profile;
use super::receipt::Receipt;
use super::rejection::Rejection;
use super::request::Request;
use super::result::TaskResult;
use super::review::ReviewFile;
use super::task::{Batch, Intake, Task, TaskSpec, VERSION};
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Who writes what a schema describes, and so what its `version` may be.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// A user, for this program: the current version, or none.
    User,
    /// This program, for readers of any version.
    Program,
}

/// Returns all schemas, each with the name of its file.
pub fn all() -> Vec<(&'static str, Value)> {
    use Writer::{Program, User};
    vec![
        ("task.schema.json", of::<TaskSpec>("task", User)),
        ("batch.schema.json", of::<Batch>("batch", User)),
        ("worker-profile.schema.json", of::<Profile>("worker-profile", User)),
        ("config.schema.json", of::<Config>("config", User)),
        ("repo-config.schema.json", of::<RepoConfig>("repo-config", User)),
        ("intake.schema.json", of::<Intake>("intake", Program)),
        ("task-record.schema.json", of::<Task>("task-record", Program)),
        ("result.schema.json", of::<TaskResult>("result", Program)),
        ("receipt.schema.json", of::<Receipt>("receipt", Program)),
        ("review.schema.json", of::<ReviewFile>("review", Program)),
        ("event.schema.json", of::<Event>("event", Program)),
        ("request.schema.json", of::<Request>("request", Program)),
        ("rejection.schema.json", of::<Rejection>("rejection", Program)),
        ("fact.schema.json", of::<Fact>("fact", Program)),
    ]
}

/// Returns a schema as the text of its file.
pub fn to_text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

/// Makes the schema of one type.
fn of<T: JsonSchema>(name: &str, writer: Writer) -> Value {
    let generator = SchemaSettings::draft2020_12().with_transform(Portable).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), json!(format!("urn:workspool:schema:{name}:{VERSION}")));
    schema.insert("$comment".into(), json!(format!("Format version {VERSION}. Made from the Rust types.")));
    schema.insert("title".into(), json!(format!("workspool {}", name.replace('-', " "))));
    version(&mut schema, writer);
    // A task inside a batch or a record stays what a user wrote.
    for (definition, writer) in [("TaskSpec", Writer::User), ("Task", Writer::Program)] {
        let inner = schema.pointer_mut(&format!("/$defs/{definition}"));
        if let Some(Ok(inner)) = inner.map(<&mut Schema>::try_from) {
            version(inner, writer);
        }
    }
    schema.to_value()
}

/// Says which versions the `version` of a schema may be, if it has one.
fn version(schema: &mut Schema, writer: Writer) {
    let Some(version) = schema.get_mut("properties").and_then(|p| p.get_mut("version")) else { return };
    let description = version.get("description").cloned().unwrap_or_default();
    *version = match writer {
        Writer::User => json!({ "description": description, "enum": [VERSION, null] }),
        Writer::Program => json!({ "description": description, "type": "integer", "minimum": 1 }),
    };
}

/// Replaces the formats that only Rust knows (`uint8`, `double`, …) by the ranges that they stand for.
///
/// Validators warn about formats that they do not know, or refuse the schema.
#[derive(Debug, Clone)]
pub struct Portable;

impl Transform for Portable {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(format) = schema.get("format").and_then(Value::as_str).map(str::to_owned) else { return };
        let range = match format.as_str() {
            "uint8" => Some((0, i64::from(u8::MAX))),
            "uint16" => Some((0, i64::from(u16::MAX))),
            "uint32" => Some((0, i64::from(u32::MAX))),
            "int8" => Some((i64::from(i8::MIN), i64::from(i8::MAX))),
            "int16" => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
            "int32" => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
            // Beyond what a JSON number holds exactly in most readers: the lower end alone.
            "int64" | "uint64" | "int" | "uint" | "float" | "double" => None,
            _ => return,
        };
        schema.remove("format");
        if let Some((least, most)) = range {
            for (keyword, bound) in [("minimum", least), ("maximum", most)] {
                if schema.get(keyword).is_none() {
                    schema.insert(keyword.into(), json!(bound));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(name: &str) -> Value {
        all().into_iter().find(|(file, _)| *file == name).unwrap().1
    }

    /// Calls `f` with each object inside a schema.
    fn each(value: &Value, f: &mut impl FnMut(&serde_json::Map<String, Value>)) {
        match value {
            Value::Object(map) => {
                f(map);
                map.values().for_each(|v| each(v, f));
            }
            Value::Array(items) => items.iter().for_each(|v| each(v, f)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_has_an_id_of_its_own_a_title_and_a_version() {
        let mut ids = std::collections::BTreeSet::new();
        for (file, schema) in all() {
            let name = file.strip_suffix(".schema.json").unwrap();
            assert_eq!(schema["$id"], format!("urn:workspool:schema:{name}:1"));
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert!(schema["title"].as_str().unwrap().starts_with("workspool "), "{file}");
            assert!(schema["description"].as_str().is_some_and(|d| !d.is_empty()), "{file}");
            assert!(ids.insert(schema["$id"].to_string()));
        }
    }

    #[test]
    fn no_format_is_left_that_other_languages_do_not_know() {
        for (file, schema) in all() {
            each(&schema, &mut |map| {
                if let Some(Value::String(format)) = map.get("format") {
                    assert_eq!(format, "date-time", "{file}");
                }
            });
        }
        let task = schema("task.schema.json");
        assert_eq!(task["properties"]["priority"]["maximum"], 100);
        assert_eq!(task["properties"]["priority"]["minimum"], 0);
    }

    #[test]
    fn what_users_write_refuses_unknown_fields_and_records_do_not() {
        for (file, schema) in all() {
            let user = ["task.", "batch.", "worker-profile.", "config.", "repo-config."]
                .iter()
                .any(|u| file.starts_with(u));
            assert_eq!(schema.get("additionalProperties"), user.then_some(&json!(false)), "{file}");
        }
    }

    #[test]
    fn other_spellings_are_in_the_schema_and_keys_of_maps_are_checked() {
        let words = schema("task.schema.json")["$defs"]["Permission"]["enum"].to_string();
        assert!(words.contains("full_access") && words.contains("readonly"), "{words}");
        let review = schema("review.schema.json")["$defs"]["Review"]["enum"].to_string();
        assert!(review.contains("needs_revision"), "{review}");
        let profile = schema("worker-profile.schema.json");
        for map in ["efforts", "permissions"] {
            assert_eq!(profile["properties"][map]["additionalProperties"], false, "{map}");
        }
    }
}
