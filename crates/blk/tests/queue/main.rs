//! The request queue from outside: with random work, and step by step.

mod accounting;
mod dispatch;
mod fixture;
mod flush;
mod merging;
mod qos;
mod random;
mod tags;
