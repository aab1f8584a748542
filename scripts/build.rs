//! Links the program for Linux at a fixed address. Half of its start is to move what points into it, and it is started
//! for every submission and attempt: see docs/decisions/0023.

fn main() {
    println!("cargo::rerun-if-changed=scripts/build.rs");
    let of = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // A static program is linked in another way.
    let is_static = of("FEATURE").split(',').any(|feature| feature == "crt-static");
    if of("OS") == "linux" && of("ENV") == "gnu" && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
