//! The environment of what we run: made from nothing, by a list of names.

pub use crate::process::own_executable;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Variables that every command gets from the runner's environment, where they are set: who and where the
/// user is, the locale, and where toolchains and certificates lie. No keys, no tokens.
pub const BASE: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "GOPROXY",
    "GOFLAGS",
    "JAVA_HOME",
    "ANDROID_HOME",
    "NVM_DIR",
    "NODE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_PREFIX",
    "PNPM_HOME",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "RBENV_ROOT",
    "GEM_HOME",
    "DOTNET_ROOT",
    "NIX_PATH",
    "NIX_PROFILES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "PIP_INDEX_URL",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "CARGO_NET_OFFLINE",
    "SDKROOT",
    "DEVELOPER_DIR",
    "LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "CC",
    "CXX",
];

/// The name that a handed-on variable gets, and the one that it has in the runner's environment: `NEW=OLD`,
/// or one name for both.
pub fn renamed(entry: &str) -> (&str, &str) {
    entry.split_once('=').unwrap_or((entry, entry))
}

/// Whether the value of a variable says where something is, or what, and is no secret.
pub fn is_plain(name: &str) -> bool {
    const ENDS: &[&str] = &[
        "_URL",
        "_FILE",
        "_HOME",
        "_DIR",
        "_PATH",
        "_MODEL",
        "_REGION",
        "_LOCATION",
        "_PROJECT",
        "_PROFILE",
        "_TYPE",
    ];
    ENDS.iter().any(|end| name.ends_with(end))
}

/// Finds an executable as a shell would: a name with a slash as it is, another along `PATH`.
pub fn find_executable(program: &str) -> Option<PathBuf> {
    let executable =
        |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let path = PathBuf::from(program);
        return executable(&path).then_some(path);
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|path| executable(path))
}
