//! `workspool retain`: removes what the configuration lets go by itself. Started by a pass; internal.

use super::exit::Exit;
use crate::care::retention;
use crate::verbs::House;

/// Remove what `[retention]` lets go
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Carries the verb out.
pub fn run(house: &House, _: &Args) -> Result<u8, Exit> {
    retention::run(&house.spool, &house.config)?;
    Ok(0)
}
