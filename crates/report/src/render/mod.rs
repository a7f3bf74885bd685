//! A comparison as text, JSON and a page.

mod columns;
pub mod html;
pub mod json;
pub mod text;
