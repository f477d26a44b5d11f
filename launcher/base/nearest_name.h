#pragma once

#include <span>
#include <string_view>

namespace strait::base {

// The known name that a person most likely meant, by edit distance (a swap of neighbours counts as
// one edit); empty when none is near enough to be worth proposing. Pure.
std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known);

}  // namespace strait::base
