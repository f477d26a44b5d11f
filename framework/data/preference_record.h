#pragma once

#include <string>
#include <string_view>

#include "framework/data/record.h"

namespace strait::data {

// Two answers to one prompt, each as a record whose answer is the target.
struct Preference {
  Record chosen;
  Record rejected;
};

// Parses a line as TRL writes preferences: "chosen" and "rejected", two texts or two lists of
// messages, perhaps after a "prompt" of the same form. Without such a prompt, what both begin with
// is the prompt. Of messages, one of the assistant's has to follow the prompt. "tools" are those of
// both chats; other keys are ignored. Throws StoreError bad_input that starts with `origin`.
Preference parse_preference(std::string_view line, const std::string& origin);

}  // namespace strait::data
