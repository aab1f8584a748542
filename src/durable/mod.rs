//! Files that are whole or absent, and locks that the kernel frees.
//!
//! Every write of ours goes through here: one place to get the syncs right, one place for tests to
//! make a disk fail. Nothing here knows what a task is.

mod atomic;
mod copy;
pub mod fault;
mod lock;
mod space;

pub use atomic::{
    PAGE, append, create_new, create_new_unsynced, ensure_dir, exchange, move_across, overwrite,
    remove_dir_all, remove_file, rename_noreplace, replace, replace_unsynced, sync_below, sync_dir,
    sync_file, sync_file_system, unique_name,
};
pub use copy::{GoOn, copy_file};
pub use lock::{Held, Lock};
pub use space::{Space, free_space};
