#pragma once

#include <optional>
#include <string>
#include <string_view>

// Names on the Hugging Face hub: "meta-llama/Llama-3.2-1B".
namespace strait::base {

// The name in a text that can be one, also after "hf://" or the hub's address; nullopt: it cannot.
// A path of one folder in another one looks the same.
std::optional<std::string> hub_name(std::string_view text);

// What to do about a path that is not there: the sentence ends with the command that downloads it.
// `options`: of that command, such as "--repo-type dataset"; else empty. A path that can be a
// name on the hub, or an address there, is downloaded from there.
std::string download_advice(const std::string& path, std::string_view options = "");

}  // namespace strait::base
