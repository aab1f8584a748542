//! `workspool notify`: tells what is to be told. Started by whoever ends a task; internal.

use super::exit::Exit;
use crate::care::notify;
use crate::verbs::House;

/// Tell what is to be told
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Carries the verb out.
pub fn run(house: &House, _: &Args) -> Result<u8, Exit> {
    notify::deliver(&house.spool, &house.config)?;
    Ok(0)
}
