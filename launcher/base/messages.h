#pragma once

#include <cstring>
#include <span>
#include <variant>

#include "framework/fields/bounded_json.h"
#include "framework/fields/json_fields.h"
#include "framework/net/link.h"
#include "launcher/base/errors.h"

// Messages between processes as frames: one JSON object each. A message is a struct with `describe`
// (fields.h), which argument-dependent lookup finds. `types` has the value of the field "type" for
// each alternative of the variant.
namespace strait::base {

// Limits of a room's messages, on both sides of a link.
struct MessageLimits {
  std::size_t frame_bytes = std::size_t{16} << 20;
  std::size_t text_bytes = std::size_t{64} << 10;
};

template <class Variant>
using TypesOf = std::array<std::string_view, std::variant_size_v<Variant>>;

// The frame of a message. Texts are truncated to a quarter of the receiver's limit, so that the
// message is not refused: invalid UTF-8 grows threefold when its bytes are replaced by U+FFFD.
template <class Variant>
net::Frame format_message(const Variant& message, const TypesOf<Variant>& types,
                          const MessageLimits& limits = {}) {
  nlohmann::json object = nlohmann::json::object();
  object["type"] = types[message.index()];
  std::visit(
      [&](const auto& m) {
        fields::JsonWriter fields(object, {.most_text = limits.text_bytes / 4});
        describe(fields, m);
      },
      message);
  const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  net::Frame frame(text.size());
  std::memcpy(frame.data(), text.data(), text.size());
  return frame;
}

// Tries the alternatives of Variant in turn.
template <class Variant, std::size_t I = 0>
Variant read_message_type(const std::string& type, const TypesOf<Variant>& types,
                          const nlohmann::json& object) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw MessageError("control message of unknown type \"" + type.substr(0, 64) + "\"");
  } else {
    if (type != types[I]) return read_message_type<Variant, I + 1>(type, types, object);
    std::variant_alternative_t<I, Variant> message;
    fields::JsonReader fields(object, {}, "control message " + type);
    describe(fields, message);
    fields.finish("type");
    return message;
  }
}

// The message of a frame. Limits are checked before memory is allocated. MessageError: the frame is
// not exactly one of the messages.
template <class Variant>
Variant parse_message(std::span<const std::byte> frame, const TypesOf<Variant>& types,
                      const MessageLimits& limits = {}) {
  if (frame.size() > limits.frame_bytes) {
    throw MessageError("control message of " + std::to_string(frame.size()) + " bytes, at most " +
                       std::to_string(limits.frame_bytes) + " are allowed");
  }
  const void* bytes = frame.data();
  const std::string_view text(static_cast<const char*>(bytes), frame.size());
  try {
    const nlohmann::json object = fields::parse_bounded_json(
        text, {.depth = 6, .string_bytes = limits.text_bytes, .values = std::size_t{1} << 18});
    if (!object.is_object()) throw MessageError("control message that is not an object");
    const auto type = object.find("type");
    if (type == object.end() || !type->is_string()) {
      throw MessageError("control message: field type is missing");
    }
    return read_message_type<Variant>(type->template get<std::string>(), types, object);
  } catch (const fields::JsonError& error) {
    throw MessageError(std::string("control message that is not JSON: ") + error.what());
  }
}

}  // namespace strait::base
