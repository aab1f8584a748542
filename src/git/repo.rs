//! A repository as the user names it: by any folder in it.
//!
//! The source may be a linked worktree, a submodule, bare, shallow, sparse, on a detached HEAD, or a
//! folder below the top. One git process finds out.

use super::index::Index;
use super::oid::{ObjectFormat, Oid};
use super::runner::{Call, Git, GitError, GitErrorKind};
use super::view::{Identity, commit};
use super::{bytes, runner};
use crate::model::hex;
use sha2::{Digest, Sha256};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a repository could not be used.
#[derive(Debug, thiserror::Error)]
pub enum RepoError {
    /// The path is not there, or not a folder.
    #[error("{} cannot be opened: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder is in no repository.
    #[error("{} is not in a git repository", .0.display())]
    NotARepository(PathBuf),
    /// Git refuses the folder since somebody else owns it.
    #[error("git does not trust the owner of {0}; allow it with `git config --global --add safe.directory`", path.display())]
    NotTrusted {
        /// The folder.
        path: PathBuf,
    },
    /// There is no commit yet, so there is nothing to start from.
    #[error("the repository {} has no commit yet; make a first one: `git commit --allow-empty -m start`", .0.display())]
    Empty(PathBuf),
    /// The revision names no commit.
    #[error("{rev:?} names no commit in {}", repo.display())]
    BadRevision {
        /// What was asked for.
        rev: String,
        /// Where.
        repo: PathBuf,
    },
    /// A path that cannot be told from two.
    #[error("{} has a line break in its name", .0.display())]
    LineBreak(PathBuf),
    /// Git failed otherwise.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Where HEAD points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// To a branch: the full ref name.
    Branch(String),
    /// To a commit.
    Detached,
}

/// The identity of a repository: the device and inode of its common git dir, and a name to read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoKey {
    /// Eight hex digits.
    pub hash: String,
    /// `<basename>-<hash>`, fit for a folder name.
    pub name: String,
}

impl fmt::Display for RepoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// An opened repository, as it was when it was opened.
#[derive(Debug, Clone)]
pub struct Repo {
    /// The top of the checkout that was named; `None` where there is none (bare, or inside the git dir).
    pub top: Option<PathBuf>,
    /// The folder below the top that was named; empty for the top itself.
    pub prefix: PathBuf,
    /// The git dir of that checkout.
    pub git_dir: PathBuf,
    /// The git dir that all worktrees of the repository share.
    pub common: PathBuf,
    /// Whether the repository is bare.
    pub bare: bool,
    /// Whether its history is cut off.
    pub shallow: bool,
    /// The hash that names its objects.
    pub format: ObjectFormat,
    /// The commit that HEAD was at.
    pub head: Oid,
    /// Where HEAD pointed.
    pub head_ref: Head,
    /// Which repository this is.
    pub key: RepoKey,
}

impl Repo {
    /// Opens the repository that `path` is in.
    pub fn open(path: &Path) -> Result<Repo, RepoError> {
        runner::version()?;
        Repo::open_again(path)
    }

    /// Opens a repository that was opened before, by whoever submitted the task: git's version was asked then.
    pub fn open_again(path: &Path) -> Result<Repo, RepoError> {
        let unusable = |source| RepoError::Path { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(unusable)?;
        if !path.is_dir() {
            return Err(unusable(std::io::ErrorKind::NotADirectory.into()));
        }
        if bytes::of_path(&path).contains(&b'\n') {
            return Err(RepoError::LineBreak(path));
        }
        let (status, out) = Call::discover(&path, "rev-parse")
            .args(["--is-bare-repository", "--is-shallow-repository", "--show-object-format"])
            .args(["--is-inside-work-tree", "--path-format=absolute", "--absolute-git-dir"])
            .args(["--git-common-dir", "HEAD^{commit}", "--symbolic-full-name", "HEAD", "--show-prefix"])
            .accepts(&[0, 128])
            .status()?;
        let lines: Vec<&[u8]> = out.split(|b| *b == b'\n').collect();
        let [bare, shallow, format, inside, git_dir, common, rest @ ..] = lines.as_slice() else {
            return Err(refused(&path));
        };
        let is = |word: &[u8]| word == b"true";
        let format = match *format {
            b"sha256" => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        };
        let (git_dir, common) = (bytes::to_path(git_dir), bytes::to_path(common));
        let common = common.canonicalize().map_err(unusable)?;
        let git_dir = git_dir.canonicalize().map_err(unusable)?;
        let head = rest.first().and_then(|line| Oid::parse(line));
        let (Some(head), 0) = (head, status) else {
            return Err(RepoError::Empty(path));
        };
        let head_ref = match rest.get(1) {
            Some(name) if name.starts_with(b"refs/") => {
                Head::Branch(String::from_utf8_lossy(name).into_owned())
            }
            _ => Head::Detached,
        };
        let prefix = match rest.get(2) {
            Some(prefix) if is(inside) => bytes::to_path(prefix.strip_suffix(b"/").unwrap_or(prefix)),
            _ => PathBuf::new(),
        };
        let top = is(inside).then(|| {
            let mut top = path.clone();
            for _ in prefix.components() {
                top.pop();
            }
            top
        });
        let key = key(&common, top.as_deref()).map_err(unusable)?;
        let (bare, shallow) = (is(bare), is(shallow));
        Ok(Repo { top, prefix, git_dir, common, bare, shallow, format, head, head_ref, key })
    }

    /// Names the shared git dir for commands on objects and refs; no work tree and no index.
    pub fn shared(&self) -> Git {
        Git::at(&self.common)
    }

    /// Names the checkout: its git dir, work tree and index. `None` where there is no checkout.
    pub fn checkout(&self) -> Option<Git> {
        let top = self.top.as_ref()?;
        Some(Git::at(&self.git_dir).work_tree(top).index(self.git_dir.join("index")))
    }

    /// Reads the index of the checkout; `None` where there is no checkout.
    pub fn index(&self) -> Option<std::io::Result<Index>> {
        self.top.as_ref().map(|_| Index::read(&self.git_dir.join("index"), self.format))
    }

    /// Resolves what the user calls a base (`HEAD` without a word) to a commit.
    ///
    /// HEAD is that of the checkout that was opened, read anew. The text never becomes an option.
    pub fn resolve_base(&self, rev: Option<&str>) -> Result<Oid, RepoError> {
        // Asked with all else when the repository was opened.
        let Some(rev) = rev else { return Ok(self.head.clone()) };
        let bad = || RepoError::BadRevision { rev: rev.to_owned(), repo: self.place().to_owned() };
        if rev.is_empty() || rev.contains(['\0', '\n']) {
            return Err(bad());
        }
        let answer = Git::at(&self.git_dir)
            .reads("rev-parse")
            .args(["--verify", "--quiet", "--end-of-options"])
            .arg(format!("{rev}^{{commit}}"))
            .accepts(&[0, 1, 128])
            .run()?;
        Oid::parse(&answer).ok_or_else(bad)
    }

    /// Reads a ref of the repository; `None` if it is not there.
    pub fn read_ref(&self, name: &str) -> Result<Option<Oid>, GitError> {
        let answer = self
            .shared()
            .reads("rev-parse")
            .args(["--verify", "--quiet", "--end-of-options", name])
            .accepts(&[0, 1])
            .run()?;
        Ok(Oid::parse(&answer))
    }

    /// Returns the tree of a commit.
    pub fn tree_of(&self, commit: &Oid) -> Result<Oid, GitError> {
        tree_of(&self.shared(), commit)
    }

    /// Makes a commit object, such as one of a merged tree that is to be verified before it lands.
    pub fn commit(
        &self,
        tree: &Oid,
        parents: &[Oid],
        message: &str,
        by: &Identity,
        seconds: i64,
    ) -> Result<Oid, GitError> {
        commit(&self.shared(), tree, parents, message, by, seconds)
    }

    /// Reads a file as a commit has it, past all filters; `None` if the commit has no such file.
    pub fn read_file(&self, commit: &Oid, path: &Path) -> Result<Option<Vec<u8>>, GitError> {
        let path = bytes::of_path(path);
        if path.contains(&b'\n') {
            return Ok(None);
        }
        let name = [commit.as_str().as_bytes(), b":", path, b"\n"].concat();
        let out = self.shared().reads("cat-file").arg("--batch").stdin(name).run()?;
        let end = out.iter().position(|b| *b == b'\n').unwrap_or(out.len());
        let mut words = out[..end].split(|b| *b == b' ').skip(1);
        let (kind, size) = (words.next(), words.next());
        let size = size.and_then(|s| std::str::from_utf8(s).ok()).and_then(|s| s.parse::<usize>().ok());
        match (kind, size) {
            (Some(b"blob"), Some(size)) => Ok(out.get(end + 1..end + 1 + size).map(<[u8]>::to_vec)),
            _ => Ok(None),
        }
    }

    /// Says whether `ancestor` is `descendant` or one of its ancestors.
    pub fn is_ancestor(&self, ancestor: &Oid, descendant: &Oid) -> Result<bool, GitError> {
        let (status, _) = self
            .shared()
            .reads("merge-base")
            .args(["--is-ancestor", ancestor.as_str(), descendant.as_str()])
            .accepts(&[0, 1])
            .status()?;
        Ok(status == 0)
    }

    /// Deletes a ref of ours, if it still has this value.
    pub fn delete_ref(&self, name: &str, old: &Oid) -> Result<(), GitError> {
        if !name.starts_with(super::BRANCHES) && !name.starts_with(super::REFS) {
            let text = format!("{name} is not a ref of ours");
            return Err(GitError::own("update-ref", GitErrorKind::Other, text));
        }
        self.set_ref(name, &old.null(), Some(old), "workspool: done with")
    }

    /// Puts the branch of a task, whether it is there or not; the caller has kept what it held.
    pub fn place_branch(&self, branch: &str, at: &Oid) -> Result<(), GitError> {
        if !branch.starts_with(super::BRANCHES) {
            let text = format!("{branch} is not a branch of ours");
            return Err(GitError::own("update-ref", GitErrorKind::Other, text));
        }
        let old = self.read_ref(branch)?;
        if old.as_ref() == Some(at) {
            return Ok(());
        }
        self.set_ref(branch, at, old.as_ref(), "workspool: start")
    }

    /// Keeps a commit by a ref of ours, unless that is there already. Says whether it was made.
    pub fn keep(&self, name: &str, commit: &Oid) -> Result<bool, GitError> {
        if !name.starts_with(super::KEPT) {
            let text = format!("{name} is not a ref of ours");
            return Err(GitError::own("update-ref", GitErrorKind::Other, text));
        }
        super::worktree::check_name(name)?;
        match self.read_ref(name)? {
            Some(_) => Ok(false),
            None => self.set_ref(name, commit, None, "workspool: kept").map(|()| true),
        }
    }

    /// Sets a ref, if it still has the old value (`None`: is not there).
    pub(super) fn set_ref(
        &self,
        name: &str,
        new: &Oid,
        old: Option<&Oid>,
        why: &str,
    ) -> Result<(), GitError> {
        let null = new.null();
        let old = old.unwrap_or(&null);
        let order = format!("update {name}\0{new}\0{old}\0");
        self.shared().writes("update-ref").args(["-m", why, "--stdin", "-z"]).stdin(order).run().map(drop)
    }

    /// The path that a person knows this repository by.
    pub fn place(&self) -> &Path {
        self.top.as_deref().unwrap_or(&self.common)
    }
}

pub(super) fn tree_of(git: &Git, commit: &Oid) -> Result<Oid, GitError> {
    let name = format!("{commit}^{{tree}}");
    git.reads("rev-parse").args(["--verify", "--quiet", "--end-of-options", &name]).oid()
}

/// Asks again in a way that fails, for the reason.
fn refused(path: &Path) -> RepoError {
    match Call::discover(path, "rev-parse").arg("--git-dir").run() {
        Err(e) if e.kind == GitErrorKind::NotARepository => RepoError::NotARepository(path.to_owned()),
        Err(e) if e.kind == GitErrorKind::NotTrusted => RepoError::NotTrusted { path: path.to_owned() },
        Err(e) => RepoError::Git(e),
        Ok(_) => RepoError::NotARepository(path.to_owned()),
    }
}

fn key(common: &Path, top: Option<&Path>) -> std::io::Result<RepoKey> {
    let meta = std::fs::metadata(common)?;
    let digest = Sha256::digest(format!("{}:{}", meta.dev(), meta.ino()));
    let hash = hex(&digest[..4]);
    // Named after the main checkout, so that all worktrees of one repository agree.
    let named = match common.file_name() {
        Some(name) if name == ".git" => common.parent().and_then(Path::file_name),
        other => other.or(top.and_then(Path::file_name)),
    };
    let named = named.unwrap_or_default().to_string_lossy();
    let named = named.strip_suffix(".git").unwrap_or(&named);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let named: String = named.trim_start_matches(['.', '-']).chars().take(40).map(plain).collect();
    let named = if named.is_empty() { "repo" } else { named.as_str() };
    Ok(RepoKey { name: format!("{named}-{hash}"), hash })
}
