//! The repository checks itself: docs, README, deployment files, layers, fuzz targets.

mod deploy;
mod docs;
mod floors;
mod fuzz_bodies;
mod language;
mod lexer;
mod readme;
