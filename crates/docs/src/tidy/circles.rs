//! Circles of files inside a crate: files that name one another's items, directly or through
//! others. A parent that names what its children declare makes no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use syn::visit::Visit;
use syn::{Item, UseTree};

/// The name of a module or of an item in one, from the crate's root on.
type Name = Vec<String>;

/// A file of a crate.
struct File {
    path: PathBuf,
    /// Names that it imports or mentions.
    mentions: Vec<Name>,
    /// Names that it declares to be others'.
    reexports: BTreeMap<String, Name>,
    /// Modules of which it reexports everything.
    globs: Vec<Name>,
    /// Items that it declares.
    items: BTreeSet<String>,
}

/// The files of a crate by the modules that they are, without its tests.
struct Crate {
    files: BTreeMap<Name, File>,
}

/// Returns the circles in the crate with this source folder.
pub(super) fn circles(source: &Path) -> Vec<BTreeSet<PathBuf>> {
    let mut of_crate = Crate {
        files: BTreeMap::new(),
    };
    for root in ["lib.rs", "main.rs"] {
        if source.join(root).exists() {
            of_crate.read(Vec::new(), &source.join(root), source);
        }
    }
    let neighbours: BTreeMap<&Name, BTreeSet<&Name>> = (of_crate.files.iter())
        .map(|(module, file)| (module, of_crate.neighbours(module, file)))
        .collect();
    let reached: BTreeMap<&Name, BTreeSet<&Name>> = (neighbours.keys())
        .map(|module| (*module, reached_from(module, &neighbours)))
        .collect();
    let circle_of = |module: &Name| -> BTreeSet<PathBuf> {
        let back = reached[module]
            .iter()
            .filter(|other| reached[**other].contains(module));
        back.map(|other| of_crate.files[*other].path.clone())
            .collect()
    };
    let circles: BTreeSet<BTreeSet<PathBuf>> = of_crate.files.keys().map(circle_of).collect();
    circles
        .into_iter()
        .filter(|files| files.len() > 1)
        .collect()
}

/// Returns all modules to which a way leads from `start`.
fn reached_from<'m>(
    start: &Name,
    neighbours: &BTreeMap<&'m Name, BTreeSet<&'m Name>>,
) -> BTreeSet<&'m Name> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Name> = neighbours[start].iter().copied().collect();
    while let Some(module) = open.pop() {
        if let Some((module, next)) = neighbours.get_key_value(module)
            && reached.insert(*module)
        {
            open.extend(next);
        }
    }
    reached
}

impl Crate {
    /// Reads a module's file and those of the modules that it declares in `folder`.
    fn read(&mut self, module: Name, path: &Path, folder: &Path) {
        let text = fs::read_to_string(path).expect("a source file");
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut children = BTreeSet::new();
        for item in &parsed.items {
            if let Item::Mod(of) = item
                && of.content.is_none()
                && !is_of_tests(&of.attrs)
            {
                let name = of.ident.to_string();
                let (file, inside) = (folder.join(format!("{name}.rs")), folder.join(&name));
                let file = if file.exists() {
                    file
                } else {
                    inside.join("mod.rs")
                };
                self.read(
                    [&module[..], slice::from_ref(&name)].concat(),
                    &file,
                    &inside,
                );
                children.insert(name);
            }
        }
        let mut reader = Reader {
            children,
            inside: module.clone(),
            file: File {
                path: path.to_path_buf(),
                mentions: Vec::new(),
                reexports: BTreeMap::new(),
                globs: Vec::new(),
                items: BTreeSet::new(),
            },
        };
        reader.visit_file(&parsed);
        self.files.insert(module, reader.file);
    }

    /// Returns the other modules whose items a file names, but for its own children.
    fn neighbours<'a>(&'a self, module: &Name, file: &File) -> BTreeSet<&'a Name> {
        let named = file.mentions.iter().filter_map(|name| self.owner(name, 0));
        named.filter(|owner| !owner.starts_with(module)).collect()
    }

    /// Returns the module whose file declares what this name means.
    fn owner(&self, name: &[String], depth: usize) -> Option<&Name> {
        let is_module = |length: &usize| self.files.contains_key(&name[..*length]);
        let length = (0..=name.len()).rev().find(is_module)?;
        let (module, file) = self.files.get_key_value(&name[..length])?;
        // A name that is a reexport of itself has no other owner.
        let Some(item) = name.get(length).filter(|_| depth < 8) else {
            return Some(module);
        };
        if let Some(meant) = file.reexports.get(item) {
            let meant = [meant, &name[length + 1..]].concat();
            return self.owner(&meant, depth + 1);
        }
        let declares = |of: &&Name| {
            let file = self.files.get(*of);
            file.is_some_and(|f| f.items.contains(item) || f.reexports.contains_key(item))
        };
        match file.globs.iter().find(declares) {
            Some(glob) => self.owner(&[glob, &name[length..]].concat(), depth + 1),
            None => Some(module),
        }
    }
}

/// Whether an item is compiled for tests alone.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && (attribute.parse_args::<syn::Path>()).is_ok_and(|path| path.is_ident("test"))
    })
}

/// Collects what a file names.
struct Reader {
    /// Modules that the file declares and that have files of their own.
    children: BTreeSet<String>,
    /// The module that is being read: the file's, or one inside the file.
    inside: Name,
    file: File,
}

impl Reader {
    /// Returns a path's name from the crate's root on; `None` for another crate's or a local one.
    fn absolute(&self, path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let outer = self.inside.len().saturating_sub(1);
        let mut base = match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => self.inside.clone(),
            "super" => self.inside[..outer].to_vec(),
            child if self.children.contains(child) => {
                return Some([&self.inside[..], path].concat());
            }
            _ => return None,
        };
        let mut rest = rest;
        while let Some((first, others)) = rest.split_first()
            && first == "super"
        {
            base.pop();
            rest = others;
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    fn mention(&mut self, path: &[String]) {
        self.file.mentions.extend(self.absolute(path));
    }

    /// Takes in the names of a `use` item, which others may use as this module's if it is public.
    fn import(&mut self, tree: &UseTree, prefix: &[String], is_public: bool) {
        let full = |name: &dyn ToString| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &full(&path.ident), is_public),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix, is_public);
                }
            }
            UseTree::Glob(_) if is_public => self.file.globs.extend(self.absolute(prefix)),
            UseTree::Glob(_) => self.mention(prefix),
            UseTree::Name(name) if name.ident == "self" => self.mention(prefix),
            UseTree::Name(name) => self.import_one(&full(&name.ident), &name.ident, is_public),
            UseTree::Rename(of) => self.import_one(&full(&of.ident), &of.rename, is_public),
        }
    }

    fn import_one(&mut self, path: &[String], name: &syn::Ident, is_public: bool) {
        match (is_public, self.absolute(path)) {
            (true, Some(meant)) => drop(self.file.reexports.insert(name.to_string(), meant)),
            _ => self.mention(path),
        }
    }
}

impl Visit<'_> for Reader {
    fn visit_item(&mut self, item: &Item) {
        let (attributes, name) = match item {
            Item::Const(of) => (&of.attrs, Some(&of.ident)),
            Item::Enum(of) => (&of.attrs, Some(&of.ident)),
            Item::Fn(of) => (&of.attrs, Some(&of.sig.ident)),
            Item::Static(of) => (&of.attrs, Some(&of.ident)),
            Item::Struct(of) => (&of.attrs, Some(&of.ident)),
            Item::Trait(of) => (&of.attrs, Some(&of.ident)),
            Item::Type(of) => (&of.attrs, Some(&of.ident)),
            Item::Impl(of) => (&of.attrs, None),
            Item::Mod(of) => (&of.attrs, None),
            Item::Use(of) => (&of.attrs, None),
            _ => return syn::visit::visit_item(self, item),
        };
        if is_of_tests(attributes) {
            return;
        }
        self.file.items.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        self.inside.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter();
        let names: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.mention(&names);
        }
        syn::visit::visit_path(self, path);
    }
}
