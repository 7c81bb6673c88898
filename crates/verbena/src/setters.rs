//! Setters of option structs, which are `#[non_exhaustive]` so that they can grow: a program cannot write them as a literal.
//! Each takes and returns the struct; an optional field takes its value with or without `Some`.

/// A setter for each field, named after it; those behind the semicolon are of type `Option`.
macro_rules! setters {
    (
        $name:ident $(<$lifetime:lifetime>)?: $($field:ident: $type:ty,)*
        $(; $($option:ident: $value:ty,)*)?
    ) => {
        impl $(<$lifetime>)? $name $(<$lifetime>)? {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
            $($(
                #[doc = concat!("Sets `", stringify!($option), "`.")]
                #[must_use]
                pub fn $option(mut self, $option: impl Into<Option<$value>>) -> Self {
                    self.$option = $option.into();
                    self
                }
            )*)?
        }
    };
}
pub(crate) use setters;
