//! The repository checks itself: docs, README, deployment files, releases, layers, fuzz targets.

mod deploy;
mod docs;
mod floors;
mod fuzz_bodies;
mod kubernetes;
mod language;
mod lexer;
mod readme;
mod release;
