//! A command that a user declares: one string for the shell, or a list of arguments.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A command: a string runs as `sh -c STRING`, a list runs as it is, without a shell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// A line for `sh -c`.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

impl Command {
    /// Returns the program and its arguments.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Shell(line) => vec!["sh".into(), "-c".into(), line.clone()],
            Command::Argv(argv) => argv.clone(),
        }
    }

    /// Says what is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        let empty = match self {
            Command::Shell(line) => line.trim().is_empty(),
            Command::Argv(argv) => argv.first().is_none_or(|program| program.is_empty()),
        };
        if empty {
            return Err("the command is empty".into());
        }
        let nul = match self {
            Command::Shell(line) => line.contains('\0'),
            Command::Argv(argv) => argv.iter().any(|a| a.contains('\0')),
        };
        if nul { Err("the command holds a NUL character".into()) } else { Ok(()) }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Shell(line) => f.write_str(line),
            Command::Argv(argv) => f.write_str(&argv.join(" ")),
        }
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Command::Shell(line) => s.serialize_str(line),
            Command::Argv(argv) => argv.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command: a string for the shell, or a list of arguments")
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Command, E> {
                Ok(Command::Shell(v.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Command, A::Error> {
                let mut argv = Vec::new();
                while let Some(arg) = seq.next_element()? {
                    argv.push(arg);
                }
                Ok(Command::Argv(argv))
            }
        }
        d.deserialize_any(Either)
    }
}

impl JsonSchema for Command {
    fn schema_name() -> Cow<'static, str> {
        "Command".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A command: a string runs as `sh -c STRING`, a list of arguments runs as it is.",
            "oneOf": [
                { "type": "string", "minLength": 1 },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}
