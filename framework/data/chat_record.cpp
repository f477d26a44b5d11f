#include "framework/data/chat_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/fields/bounded_json.h"

namespace strait::data {
namespace {

// Roles that can be rendered without a chat template.
constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};
constexpr const char* kTools = "tools";
constexpr std::size_t kShownBytes = 64;  // of a name that a message quotes
constexpr std::size_t kShownRoles = 8;
// Names in ShareGPT files, and the roles that they mean.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kShareGptRoles{
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"chatgpt", "assistant"},
     {"bing", "assistant"},
     {"bard", "assistant"},
     {"model", "assistant"},
     {"system", "system"},
     {"tool", "tool"},
     {"observation", "tool"},
     {"function_response", "tool"}}};

std::string joined_parts(const nlohmann::json& parts, const std::string& origin) {
  std::string text;
  for (const nlohmann::json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text") {
      refuse_record(origin,
                    "a part of \"content\" is not {\"type\": \"text\", \"text\": ...}; only "
                    "text can be trained on");
    }
    text += required_string(part, "text", origin);
  }
  return text;
}

// Tables of many records have null or an empty list where a record has none.
bool has_items(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->empty();
}

// The value of "tools", which may be a JSON text; null: none.
nlohmann::json tools_of(const nlohmann::json& root, const std::string& origin) {
  if (!has_items(root, "tools")) return nullptr;
  nlohmann::json tools = root["tools"];
  if (tools.is_string()) {
    const std::string text = tools.get<std::string>();
    if (text.find_first_not_of(" \t\r\n") == text.npos) return nullptr;
    try {
      tools = fields::parse_bounded_json(text);
    } catch (const fields::JsonError& error) {
      refuse_record(origin, fmt::format("\"tools\" is a text that is not JSON: {}; write a list of "
                                        "tools, or leave it out",
                                        error.what()));
    }
  }
  if (!tools.is_null() && !tools.is_structured()) {
    refuse_record(origin,
                  fmt::format("\"tools\" is {} where a list of tools is expected; leave it out "
                              "where there are none",
                              kind_of(tools)));
  }
  return tools.empty() ? nlohmann::json() : tools;
}

// Empty for a message of tool calls only, which only a template can render.
std::string content_of(const nlohmann::json& message, const std::string& origin) {
  const auto found = message.find("content");
  const bool calls = has_items(message, "tool_calls");
  if (found != message.end() && found->is_array()) return joined_parts(*found, origin);
  if (calls && (found == message.end() || found->is_null())) return "";
  return required_string(message, "content", origin);
}

// Not of an assistant's message with "train": false, or with a "weight" of 0.
bool is_learnt(const nlohmann::json& message, const std::string& role, const std::string& origin) {
  const nlohmann::json train = message.value("train", nlohmann::json());
  if (!train.is_null() && !train.is_boolean()) {
    refuse_record(origin,
                  fmt::format("\"train\" is {} where true or false is expected", kind_of(train)));
  }
  if (role == "assistant") return train != false && message.value("weight", nlohmann::json()) != 0;
  if (train == true) {
    refuse_record(
        origin,
        "its \"train\" is true, but only what the assistant says is learnt; leave it out, "
        "or set data.targets = \"all\"");
  }
  return false;
}

void add_message(Record& record, const std::string& role, const std::string& content, bool learnt) {
  record.pieces.push_back({role + ": ", false});
  record.pieces.push_back({content + "\n", learnt});
}

void check_learnable(const Record& record) {
  if (std::ranges::any_of(record.pieces, &Piece::is_target)) return;
  std::vector<std::string> roles;
  for (std::size_t i = 0; i < record.pieces.size() && roles.size() < kShownRoles; i += 2) {
    const std::string& text = record.pieces[i].text;  // "role: "
    std::string role =
        fmt::format("\"{}\"", text.substr(0, text.size() - 2).substr(0, kShownBytes));
    if (std::ranges::find(roles, role) == roles.end()) roles.push_back(std::move(role));
  }
  if (std::ranges::find(roles, "\"assistant\"") != roles.end()) {
    refuse_record(
        record.origin,
        "all messages of the role \"assistant\" have \"train\": false or a \"weight\" of 0, "
        "so there is nothing to learn");
  }
  refuse_record(record.origin,
                fmt::format("no message has the role \"assistant\" (there are: {}), so there is "
                            "nothing to learn",
                            fmt::join(roles, ", ")));
}

std::string role_of(const std::string& speaker, const std::string& origin) {
  for (const auto& [name, role] : kShareGptRoles) {
    if (name == speaker) return std::string(role);
  }
  refuse_record(origin, fmt::format("\"from\" is \"{}\", which is none of human, gpt, system, tool",
                                    speaker.substr(0, kShownBytes)));
}

nlohmann::json shared_messages(const nlohmann::json& turns, const std::string& origin) {
  if (!turns.is_array() || turns.empty()) {
    refuse_record(origin, "\"conversations\" is not a list of {\"from\", \"value\"}");
  }
  nlohmann::json messages = nlohmann::json::array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string where = fmt::format("{}: turn {}", origin, i + 1);
    if (!turns[i].is_object()) refuse_record(where, "it is not an object");
    const std::string role = role_of(required_string(turns[i], "from", where), where);
    messages.push_back({{"role", role}, {"content", required_string(turns[i], "value", where)}});
    const bool learnt = is_learnt(turns[i], role, where);
    if (role == "assistant" && !learnt) messages.back()["train"] = false;
  }
  return messages;
}

// "history": [[asked, answered], ...], the earlier turns of some Alpaca files.
void add_history(nlohmann::json& messages, const nlohmann::json& history,
                 const std::string& origin) {
  const auto is_turn = [](const nlohmann::json& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  if (!history.is_array() || !std::ranges::all_of(history, is_turn)) {
    refuse_record(origin, "\"history\" is not a list of [instruction, output]");
  }
  for (const nlohmann::json& turn : history) {
    messages.push_back({{"role", "user"}, {"content", turn[0]}});
    messages.push_back({{"role", "assistant"}, {"content", turn[1]}});
  }
}

nlohmann::json instruction_messages(const nlohmann::json& root, const std::string& origin) {
  nlohmann::json messages = nlohmann::json::array();
  if (root.contains("history")) add_history(messages, root["history"], origin);
  std::string asked = required_string(root, "instruction", origin);
  const std::string input = root.contains("input") ? required_string(root, "input", origin) : "";
  if (!input.empty()) asked += "\n\n" + input;
  messages.push_back({{"role", "user"}, {"content", asked}});
  messages.push_back({{"role", "assistant"}, {"content", required_string(root, "output", origin)}});
  return messages;
}

void refuse_second_system(const nlohmann::json& messages, const std::string& origin) {
  const nlohmann::json& first = messages.front();
  if (!first.is_object()) return;
  const nlohmann::json role = first.value("role", nlohmann::json());
  if (role != "system" && role != "developer") return;
  refuse_record(origin,
                fmt::format("it has \"system\" and begins with a message of the role {}, and only "
                            "one of them can begin a chat; leave one out",
                            role.dump()));
}

bool is_from_assistant(const nlohmann::ordered_json& message) {
  return message.is_object() && message.value("role", nlohmann::ordered_json()) == "assistant";
}

// Some files in the form of ShareGPT have the messages of chat templates.
bool has_roles(const nlohmann::json& turns) {
  return turns.is_array() && !turns.empty() && turns.front().is_object() &&
         turns.front().contains("role") && !turns.front().contains("from");
}

// Of a line whose messages had other keys.
Record record_of_chat(const nlohmann::ordered_json& chat, const std::string& origin) {
  const std::string text = chat.dump();
  return message_record(nlohmann::json::parse(text), text, origin);
}

// Keeps the order of the line's keys, which templates show.
std::string with_system(std::string_view line, const std::string& system) {
  nlohmann::ordered_json chat = nlohmann::ordered_json::parse(line);
  chat.erase("system");
  nlohmann::ordered_json& messages = chat["messages"];
  messages.insert(messages.begin(),
                  nlohmann::ordered_json{{"role", "system"}, {"content", system}});
  return chat.dump();
}

}  // namespace

std::string system_text(const nlohmann::json& root, const std::string& origin) {
  const auto found = root.find("system");
  if (found == root.end() || found->is_null()) return "";
  return required_string(root, "system", origin);
}

Record prompt_record(const nlohmann::json& root, std::string_view line, const std::string& origin) {
  const nlohmann::json& messages = root["messages"];
  if (!messages.is_array() || messages.empty()) {
    refuse_record(origin, "\"messages\" is not a list of {\"role\", \"content\"}");
  }
  Record record{
      origin, {}, true, std::string(line), tools_of(root, origin).is_null() ? "" : kTools};
  if (const std::string system = system_text(root, origin); !system.empty()) {
    refuse_second_system(messages, origin);
    record.chat = with_system(line, system);
    add_message(record, "system", system, false);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("{}: message {}", origin, i + 1);
    if (!messages[i].is_object()) refuse_record(where, "it is not an object");
    const std::string role = required_string(messages[i], "role", where);
    const std::string content = content_of(messages[i], where);
    if (has_items(messages[i], "tool_calls")) record.needs_template = kTools;
    if (std::ranges::find(kRoles, role) == kRoles.end()) {
      record.needs_template =
          fmt::format("the role \"{}\" (message {})", role.substr(0, kShownBytes), i + 1);
    }
    add_message(record, role, content, is_learnt(messages[i], role, where));
  }
  return record;
}

std::string tools_content(const Record& record) {
  if (record.needs_template.empty() || record.chat.empty()) return "";
  const nlohmann::json chat = nlohmann::json::parse(record.chat);
  nlohmann::json calls = nlohmann::json::array();
  for (const nlohmann::json& message : chat["messages"]) {
    calls.push_back(has_items(message, "tool_calls") ? message["tool_calls"] : nlohmann::json());
  }
  return nlohmann::json{{"tools", tools_of(chat, record.origin)}, {"tool_calls", calls}}.dump();
}

Record message_record(const nlohmann::json& root, std::string_view line,
                      const std::string& origin) {
  Record record = prompt_record(root, line, origin);
  check_learnable(record);
  return record;
}

bool is_chat_pair(const nlohmann::json& root) {
  const auto prompt = root.find("prompt");
  const auto completion = root.find("completion");
  return prompt != root.end() && prompt->is_array() && completion != root.end() &&
         completion->is_array();
}

Record chat_pair_record(std::string_view line, const std::string& origin) {
  nlohmann::ordered_json chat = nlohmann::ordered_json::parse(line);
  nlohmann::ordered_json messages = std::move(chat["prompt"]);
  const nlohmann::ordered_json answers = std::move(chat["completion"]);
  if (std::ranges::none_of(answers, is_from_assistant)) {
    refuse_record(origin,
                  "\"completion\" has no message of the role \"assistant\", so there is nothing "
                  "to learn");
  }
  for (nlohmann::ordered_json& message : messages) {
    if (is_from_assistant(message)) message["train"] = false;
  }
  messages.insert(messages.end(), answers.begin(), answers.end());
  chat.erase("prompt");
  chat.erase("completion");
  chat["messages"] = std::move(messages);
  return record_of_chat(chat, origin);
}

bool is_foreign_chat(const nlohmann::json& root) {
  return root.contains("conversations") ||
         (root.contains("instruction") && root.contains("output"));
}

Record foreign_chat_record(const nlohmann::json& root, std::string_view line,
                           const std::string& origin) {
  if (root.contains("conversations") && has_roles(root["conversations"])) {
    nlohmann::ordered_json chat = nlohmann::ordered_json::parse(line);
    chat["messages"] = std::move(chat["conversations"]);
    chat.erase("conversations");
    return record_of_chat(chat, origin);
  }
  nlohmann::json messages = root.contains("conversations")
                                ? shared_messages(root["conversations"], origin)
                                : instruction_messages(root, origin);
  if (const std::string system = system_text(root, origin); !system.empty()) {
    refuse_second_system(messages, origin);
    const nlohmann::json first = {{"role", "system"}, {"content", system}};
    messages.insert(messages.begin(), first);
  }
  nlohmann::ordered_json chat = {{"messages", messages}};
  // Keeps the order of keys, which templates show.
  if (root.contains("tools")) chat["tools"] = nlohmann::ordered_json::parse(line)["tools"];
  Record record{origin, {}, true, chat.dump(), tools_of(root, origin).is_null() ? "" : kTools};
  for (const nlohmann::json& message : messages) {
    const auto role = message["role"].get<std::string>();
    add_message(record, role, message["content"].get<std::string>(),
                is_learnt(message, role, origin));
  }
  check_learnable(record);
  return record;
}

}  // namespace strait::data
