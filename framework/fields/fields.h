#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "framework/error.h"

// One description of a struct for all of its external forms. A struct is described once:
//
//   void describe(auto& fields, fields::Is<Hello> auto& hello) {
//     fields("process", hello.process), fields("pid", hello.pid);
//   }
//
// JsonWriter, JsonReader (json_fields.h), BytesWriter and BytesReader (byte_fields.h) walk that
// list, so a writer and its reader cannot differ. `describe` is found by argument-dependent lookup:
// it is in the namespace of the struct, or in strait::fields if the struct's room must not know of
// it. It is defined in the source file that reads and writes the struct.
namespace strait::fields {

// A message from another process, or a file in the form of a message, that cannot be parsed. what()
// names the message and the field.
class MessageError : public ProtocolError {
 public:
  using ProtocolError::ProtocolError;
};

// A field that is not described: probably of another build.
class UnknownField : public MessageError {
 public:
  using MessageError::MessageError;
};

// T is U or const U: readers get a mutable struct, writers a const one.
template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// ---- forms of a type, stated by a specialisation

// A struct that is written as a list of its members: a std::tuple of member pointers.
template <class T>
inline constexpr std::nullptr_t kListForm = nullptr;
template <class T, class U>
inline constexpr std::tuple kListForm<std::pair<T, U>> = {&std::pair<T, U>::first,
                                                          &std::pair<T, U>::second};

// A type that is written as a text. `expected` completes "field x is not ".
template <class T>
struct TextForm {
  const char* expected;
  std::string (T::*text)() const;
  std::optional<T> (*parse)(std::string_view);
};
template <class T>
inline constexpr std::nullptr_t kTextForm = nullptr;

// An enumeration that is written as a name: a std::array of the names, in the order of the values.
// Others are written as their numbers, which are not negative.
template <class T>
inline constexpr std::nullptr_t kEnumNames = nullptr;

template <class T>
concept HasListForm = !std::same_as<std::remove_const_t<decltype(kListForm<T>)>, std::nullptr_t>;
template <class T>
concept HasTextForm = !std::same_as<std::remove_const_t<decltype(kTextForm<T>)>, std::nullptr_t>;
template <class T>
concept NamedEnum = !std::same_as<std::remove_const_t<decltype(kEnumNames<T>)>, std::nullptr_t>;

// ---- bounds of a field, for BytesWriter and BytesReader: fields("path", at_most(m.path, 4096))

// A text of at most this many bytes, or a list of at most this many elements. The reader refuses a
// longer one; the writer truncates a text.
template <class T>
struct AtMost {
  T& value;
  std::size_t most;
};
template <class T>
AtMost<T> at_most(T& value, std::size_t most) {
  return {value, most};
}

// A text of exactly this many bytes, without a length before it.
template <class T>
struct Exactly {
  T& value;
  std::size_t size;
};
template <class T>
Exactly<T> exactly(T& value, std::size_t size) {
  return {value, size};
}

// Bytes up to the end of the message: at least one, at most this many. Must be the last field.
template <class T>
struct Rest {
  T& value;
  std::size_t most;
};
template <class T>
Rest<T> rest(T& value, std::size_t most) {
  return {value, most};
}

}  // namespace strait::fields
