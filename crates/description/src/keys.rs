//! The declaration of keys: [`keys!`](crate::keys).

/// Declares a table of a description: a struct, how it is read, and the reference of its
/// keys, which is made from their doc comments.
///
/// ```
/// use blklab_description::{keys, nanos, number, read, whole};
///
/// keys! {
///     /// The flash.
///     #[derive(Debug, PartialEq)]
///     pub struct Flash(table, planes: u32) {
///         /// Time of an erase.
///         pub erase_ns: u64 as "erase_us" = number(0.001..=1e6).map(nanos);
///         /// Blocks of all planes.
///         let blocks: u32 = whole(1..=1024).or(64);
///         /// Blocks of a plane.
///         pub blocks_per_plane: u32 => blocks / planes;
///     }
/// }
///
/// let flash = read("my.toml", "[flash]\nerase_us = 1.5\n", |root| {
///     let flash = Flash::read(&root.table("flash")?, 2)?;
///     root.finish()?;
///     Ok(flash)
/// });
/// assert_eq!(flash, Ok(Flash { erase_ns: 1500, blocks_per_plane: 32 }));
/// ```
///
/// The parentheses hold the name of the table variable and any parameters that the keys
/// depend on. A field with `=` has the value of the key of its name, or of the name
/// after `as`; `let` declares a key without a field, and a field with `=>` is computed
/// from others. Each declaration may use those before it. The reference shows the first
/// paragraph of a doc comment.
#[macro_export]
macro_rules! keys {
    (
        $(#[doc = $about:literal])*
        #[derive($($derive:tt)*)]
        $vis:vis struct $name:ident ($table:ident $($with:tt)*) { $($body:tt)* }
    ) => {
        $crate::keys! {
            @ { $(#[doc = $about])* #[derive($($derive)*)] $vis struct $name }
            $name { $table $($with)* } { concat!($($about, "\n"),*) } {} {} {} $($body)*
        }
    };
    (
        @ $head:tt $name:ident { $table:ident $($with:tt)* } $about:tt
        $fields:tt { $($read:tt)* } $names:tt
        $(#[doc = $help:literal])*
        let $key:ident : $type:ty = $entry:expr ; $($rest:tt)*
    ) => {
        $crate::keys! {
            @ $head $name { $table $($with)* } $about $fields
            {
                $($read)*
                let $key: $type = $table.key(stringify!($key), concat!($($help, "\n"),*), $entry)?;
            }
            $names $($rest)*
        }
    };
    (
        @ $head:tt $name:ident { $table:ident $($with:tt)* } $about:tt
        { $($fields:tt)* } { $($read:tt)* } { $($names:tt)* }
        $(#[doc = $help:literal])*
        $vis:vis $field:ident : $type:ty $(as $key:literal)? = $entry:expr ; $($rest:tt)*
    ) => {
        $crate::keys! {
            @ $head $name { $table $($with)* } $about
            { $($fields)* $(#[doc = $help])* $vis $field: $type, }
            {
                $($read)*
                let $field: $type = $table.key(
                    $crate::keys!(@name $field $($key)?), concat!($($help, "\n"),*), $entry,
                )?;
            }
            { $($names)* $field, } $($rest)*
        }
    };
    (
        @ $head:tt $name:ident $with:tt $about:tt
        { $($fields:tt)* } { $($read:tt)* } { $($names:tt)* }
        $(#[doc = $help:literal])*
        $vis:vis $field:ident : $type:ty => $value:expr ; $($rest:tt)*
    ) => {
        $crate::keys! {
            @ $head $name $with $about
            { $($fields)* $(#[doc = $help])* $vis $field: $type, }
            { $($read)* let $field: $type = $value; }
            { $($names)* $field, } $($rest)*
        }
    };
    (
        @ { $($head:tt)* } $name:ident { $table:ident $($with:tt)* } { $about:expr }
        { $($fields:tt)* } { $($read:tt)* } { $($names:tt)* }
    ) => {
        $($head)* { $($fields)* }

        impl $name {
            /// Reads its table, in which no other key may be.
            pub(crate) fn read(
                $table: &$crate::Table<'_> $($with)*
            ) -> Result<$name, $crate::ReadError> {
                $table.about($about);
                $($read)*
                $table.finish()?;
                Ok($name { $($names)* })
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
}
