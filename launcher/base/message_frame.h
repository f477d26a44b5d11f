#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "framework/net/link.h"
#include "framework/store/bounded_json.h"
#include "launcher/base/message_fields.h"

// How messages between processes become frames, one JSON object each. A message is a struct with a
// function `describe(fields, message)` that names its fields in one list, for the writer and for
// the reader, and `type_name(std::type_identity<Message>)`, its type in the frame; both beside it,
// found by argument-dependent lookup.
namespace strait::base {

struct MessageLimits {
  std::size_t frame_bytes = std::size_t{16} << 20;
  std::size_t text_bytes = std::size_t{64} << 10;
};

// The frame of one of a room's messages.
template <class Variant>
net::Frame format_message(const Variant& message, const MessageLimits& limits = {}) {
  nlohmann::json object = nlohmann::json::object();
  std::visit(
      [&](const auto& m) {
        object["type"] = type_name(std::type_identity<std::decay_t<decltype(m)>>{});
        FieldWriter fields(object, limits.text_bytes);
        describe(fields, m);
      },
      message);
  const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  net::Frame frame(text.size());
  std::memcpy(frame.data(), text.data(), text.size());
  return frame;
}

template <class Variant, std::size_t I = 0>
Variant read_message_type(const std::string& type, const nlohmann::json& object) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw ControlError("control message of unknown type \"" + type.substr(0, 64) + "\"");
  } else {
    using Message = std::variant_alternative_t<I, Variant>;
    if (type != type_name(std::type_identity<Message>{})) return read_message_type<Variant, I + 1>(type, object);
    Message message;
    FieldReader fields(object, "control message " + type);
    describe(fields, message);
    fields.finish(1);
    return message;
  }
}

// And back. Limits are checked before memory is spent; anything that is not exactly one of the
// messages is a ControlError.
template <class Variant>
Variant parse_message(std::span<const std::byte> frame, const MessageLimits& limits = {}) {
  if (frame.size() > limits.frame_bytes) {
    throw ControlError("control message of " + std::to_string(frame.size()) + " bytes, at most " +
                       std::to_string(limits.frame_bytes) + " are allowed");
  }
  const void* bytes = frame.data();
  const std::string_view text(static_cast<const char*>(bytes), frame.size());
  try {
    const nlohmann::json object = store::parse_bounded_json(
        text, {.depth = 6, .string_bytes = limits.text_bytes, .values = std::size_t{1} << 18});
    if (!object.is_object()) throw ControlError("control message that is not an object");
    const auto type = object.find("type");
    if (type == object.end() || !type->is_string()) {
      throw ControlError("control message: field type is missing");
    }
    return read_message_type<Variant>(type->template get<std::string>(), object);
  } catch (const store::JsonError& error) {
    throw ControlError(std::string("control message that is not JSON: ") + error.what());
  }
}

}  // namespace strait::base
