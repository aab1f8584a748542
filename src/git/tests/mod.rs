//! Tests of the git room against the real git, named after the hazard.

mod guards;
mod indexes;
mod lands;
mod repos;
mod salvages;
mod support;
mod views;
mod worktrees;
