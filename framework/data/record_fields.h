#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace strait::data {

// StoreError bad_input: "<origin>: <why>".
[[noreturn]] void refuse_record(const std::string& origin, const std::string& why);

// What a value is, within a sentence: "a number", "a list".
const char* kind_of(const nlohmann::json& value);

// The string under this key, which a record has to have.
std::string required_string(const nlohmann::json& object, const char* key,
                            const std::string& origin);

}  // namespace strait::data
