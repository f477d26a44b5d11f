#include "launcher/control/control_message.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "framework/store/bounded_json.h"

namespace strait::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFrame = std::size_t{16} << 20;
constexpr std::size_t kMaxString = std::size_t{64} << 10;
constexpr store::JsonLimits kControlLimits{
    .depth = 6, .string_bytes = kMaxString, .values = std::size_t{1} << 18};

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// The one list of fields of each message: read by the writer and by the reader.
void describe(auto& f, Is<LinkTraffic> auto& m) {
  f("name", m.name), f("peer", m.peer), f("sent_bytes", m.sent_bytes);
  f("received_bytes", m.received_bytes);
}
void describe(auto& f, Is<store::ShardFile> auto& m) {
  f("name", m.name), f("size", m.size), f("hash", m.hash);
}
void describe(auto& f, Is<Hello> auto& m) {
  f("process", m.process), f("pid", m.pid), f("host", m.host), f("build", m.build);
}
void describe(auto& f, Is<Ready> auto& m) { f("endpoints", m.endpoints); }
void describe(auto& f, Is<Progress> auto& m) {
  f("step", m.step), f("micro_batch", m.micro_batch), f("phase", m.phase);
  f("waits_for", m.waits_for), f("waits_on", m.waits_on), f("waited_seconds", m.waited_seconds);
  f("finished_actions", m.finished_actions), f("links", m.links);
}
void describe(auto& f, Is<BoundaryStep> auto& m) {
  f("boundary", m.boundary), f("direction", m.direction), f("raw_bytes", m.raw_bytes);
  f("sent_bytes", m.sent_bytes), f("change", m.change), f("error", m.error);
  f("cache_bytes", m.cache_bytes), f("hits", m.hits), f("first_visits", m.first_visits);
  f("evictions", m.evictions), f("resends", m.resends);
}
void describe(auto& f, Is<SyncStep> auto& m) {
  f("process", m.process), f("rounds", m.rounds), f("sent_bytes", m.sent_bytes);
  f("bfloat16_bytes", m.bfloat16_bytes), f("round_seconds", m.round_seconds);
  f("waited_seconds", m.waited_seconds);
}
void describe(auto& f, Is<StepDone> auto& m) {
  f("step", m.step), f("loss", m.loss), f("grad_norm", m.grad_norm);
  f("learning_rate", m.learning_rate), f("tokens", m.tokens), f("skipped", m.skipped);
  f("seconds", m.seconds), f("busy_seconds", m.busy_seconds);
  f("bytes_forward", m.bytes_forward), f("bytes_backward", m.bytes_backward);
  f("bytes_sync", m.bytes_sync), f("boundaries", m.boundaries), f("sync", m.sync);
}
void describe(auto& f, Is<Evaluated> auto& m) {
  f("step", m.step), f("loss", m.loss), f("tokens", m.tokens);
}
void describe(auto& f, Is<ShardsWritten> auto& m) { f("step", m.step), f("files", m.files); }
void describe(auto& f, Is<ShardFailed> auto& m) {
  f("step", m.step), f("code", m.code), f("text", m.text);
}
void describe(auto& f, Is<Event> auto& m) { f("name", m.name), f("text", m.text); }
void describe(auto& f, Is<Failed> auto& m) { f("code", m.code), f("text", m.text); }
void describe(auto& f, Is<Done> auto& m) { f("step", m.step); }
void describe(auto& f, Is<Peers> auto& m) { f("endpoints", m.endpoints); }
void describe(auto& /*f*/, Is<StopAfterStep> auto& /*m*/) {}
void describe(auto& f, Is<Committed> auto& m) { f("step", m.step); }
void describe(auto& f, Is<Dropped> auto& m) { f("step", m.step), f("text", m.text); }
void describe(auto& f, Is<Abort> auto& m) {
  f("code", m.code), f("text", m.text), f("origin", m.origin);
}

template <class T>
constexpr std::string_view kTypeName = "";
template <>
constexpr std::string_view kTypeName<Hello> = "hello";
template <>
constexpr std::string_view kTypeName<Ready> = "ready";
template <>
constexpr std::string_view kTypeName<Progress> = "progress";
template <>
constexpr std::string_view kTypeName<StepDone> = "step_done";
template <>
constexpr std::string_view kTypeName<Evaluated> = "evaluated";
template <>
constexpr std::string_view kTypeName<ShardsWritten> = "shards_written";
template <>
constexpr std::string_view kTypeName<ShardFailed> = "shard_failed";
template <>
constexpr std::string_view kTypeName<Event> = "event";
template <>
constexpr std::string_view kTypeName<Failed> = "failed";
template <>
constexpr std::string_view kTypeName<Done> = "done";
template <>
constexpr std::string_view kTypeName<Peers> = "peers";
template <>
constexpr std::string_view kTypeName<StopAfterStep> = "stop_after_step";
template <>
constexpr std::string_view kTypeName<Committed> = "committed";
template <>
constexpr std::string_view kTypeName<Dropped> = "dropped";
template <>
constexpr std::string_view kTypeName<Abort> = "abort";

class FieldWriter {
 public:
  explicit FieldWriter(json& object) : object_(object) {}

  template <class T>
  void operator()(const char* key, const T& value) {
    object_[key] = said(value);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) object_[key] = said(*value);
  }

 private:
  // A text of ours that is too long for the other side's limits is cut, not refused. A quarter,
  // because bytes that are no UTF-8 grow threefold when they are replaced.
  static json said(const std::string& text) { return text.substr(0, kMaxString / 4); }
  static json said(store::Step step) { return store::number(step); }
  static json said(const net::ProcessName& process) { return process.text(); }
  static json said(ExitCode code) { return number(code); }
  static json said(const std::map<std::string, std::string>& map) { return map; }
  template <class T>
  requires std::is_arithmetic_v<T>
  static json said(T value) { return value; }
  template <class T>
  static json said(const std::vector<T>& list) {
    json out = json::array();
    for (const T& element : list) {
      json object = json::object();
      FieldWriter fields(object);
      describe(fields, element);
      out.push_back(std::move(object));
    }
    return out;
  }

  json& object_;
};

class FieldReader {
 public:
  FieldReader(const json& object, std::string message)
      : object_(object), message_(std::move(message)) {}

  template <class T>
  void operator()(const char* key, T& value) {
    const auto found = object_.find(key);
    if (found == object_.end()) throw ControlError(message_ + ": field " + key + " is missing");
    ++known_;
    take(*found, key, value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    ++known_;
    take(*found, key, value.emplace());
  }

  // `others`: fields that were looked at elsewhere.
  void finish(std::size_t others) const {
    if (object_.size() != known_ + others) {
      throw ControlError(message_ + ": has a field that this build does not know");
    }
  }

 private:
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    throw ControlError(message_ + ": field " + key + " is not " + expected);
  }

  void take(const json& from, const char* key, std::string& to) const {
    if (!from.is_string()) wrong(key, "a text");
    to = from.get<std::string>();
  }
  void take(const json& from, const char* key, bool& to) const {
    if (!from.is_boolean()) wrong(key, "true or false");
    to = from.get<bool>();
  }
  void take(const json& from, const char* key, double& to) const {
    // JSON has no word for what is not finite; null stands for it.
    if (!from.is_number() && !from.is_null()) wrong(key, "a number");
    to = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
  }
  void take(const json& from, const char* key, std::uint64_t& to) const {
    if (!from.is_number_unsigned()) wrong(key, "a whole number from 0");
    to = from.get<std::uint64_t>();
  }
  void take(const json& from, const char* key, std::int64_t& to) const {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!from.is_number_integer() ||
        (from.is_number_unsigned() && from.get<std::uint64_t>() > kMost)) {
      wrong(key, "a whole number");
    }
    to = from.get<std::int64_t>();
  }
  void take(const json& from, const char* key, store::Step& to) const {
    std::int64_t step = 0;
    take(from, key, step);
    if (step < 0) wrong(key, "a step");
    to = store::Step{step};
  }
  void take(const json& from, const char* key, net::ProcessName& to) const {
    const auto name =
        from.is_string() ? net::ProcessName::parse(from.get<std::string>()) : std::nullopt;
    if (!name) wrong(key, "the name of a process");
    to = *name;
  }
  void take(const json& from, const char* key, ExitCode& to) const {
    std::int64_t code = 0;
    take(from, key, code);
    if (code < 0 || code > 255) wrong(key, "an exit code");
    to = ExitCode{static_cast<int>(code)};
  }
  void take(const json& from, const char* key, std::map<std::string, std::string>& to) const {
    if (!from.is_object()) wrong(key, "an object");
    for (const auto& [name, value] : from.items()) take(value, key, to[name]);
  }
  template <class T>
  void take(const json& from, const char* key, std::vector<T>& to) const {
    if (!from.is_array()) wrong(key, "a list");
    for (const json& element : from) {
      if (!element.is_object()) wrong(key, "a list of objects");
      FieldReader fields(element, message_ + ", " + key);
      describe(fields, to.emplace_back());
      fields.finish(0);
    }
  }

  const json& object_;
  std::string message_;
  std::size_t known_ = 0;
};

template <class Variant>
net::Frame format_any(const Variant& message) {
  json object = json::object();
  std::visit(
      [&object](const auto& m) {
        object["type"] = kTypeName<std::decay_t<decltype(m)>>;
        FieldWriter fields(object);
        describe(fields, m);
      },
      message);
  const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  net::Frame frame(text.size());
  std::memcpy(frame.data(), text.data(), text.size());
  return frame;
}

template <class Variant, std::size_t I = 0>
Variant read_type(const std::string& type, const json& object) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw ControlError("control message of unknown type \"" + type.substr(0, 64) + "\"");
  } else {
    using Message = std::variant_alternative_t<I, Variant>;
    if (type != kTypeName<Message>) return read_type<Variant, I + 1>(type, object);
    Message message;
    FieldReader fields(object, "control message " + type);
    describe(fields, message);
    fields.finish(1);
    return message;
  }
}

template <class Variant>
Variant parse_any(std::span<const std::byte> frame) {
  if (frame.size() > kMaxFrame) {
    throw ControlError("control message of " + std::to_string(frame.size()) + " bytes, at most " +
                       std::to_string(kMaxFrame) + " are allowed");
  }
  const void* bytes = frame.data();
  const std::string_view text(static_cast<const char*>(bytes), frame.size());
  try {
    const json object = store::parse_bounded_json(text, kControlLimits);
    if (!object.is_object()) throw ControlError("control message that is not an object");
    const auto type = object.find("type");
    if (type == object.end() || !type->is_string()) {
      throw ControlError("control message: field type is missing");
    }
    return read_type<Variant>(type->template get<std::string>(), object);
  } catch (const store::JsonError& error) {
    throw ControlError(std::string("control message that is not JSON: ") + error.what());
  }
}

}  // namespace

net::Frame format(const StageMessage& message) { return format_any(message); }
net::Frame format(const CoordinatorMessage& message) { return format_any(message); }

StageMessage parse_stage_message(std::span<const std::byte> frame) {
  return parse_any<StageMessage>(frame);
}
CoordinatorMessage parse_coordinator_message(std::span<const std::byte> frame) {
  return parse_any<CoordinatorMessage>(frame);
}

}  // namespace strait::launcher
