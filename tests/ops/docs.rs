//! What is written in `docs/` and `scripts/` is what the program says.

use std::path::{Path, PathBuf};
use workspool::model::config_keys;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn the_list_of_keys_is_the_one_of_the_types() {
    let path = root().join("docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = text.find("<!-- keys:").and_then(|at| text[at..].find('\n').map(|n| at + n + 1)).unwrap();
    let end = text.find("<!-- end of keys -->").unwrap();
    let wanted = format!("{}\n{}\n{}", &text[..begin], config_keys::reference(), &text[end..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == wanted,
        "docs/configuration.md differs from the types: run `UPDATE_DOCS=1 cargo test --test ops`"
    );
}
