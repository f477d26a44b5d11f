#pragma once

#include <string>

namespace strait {

// The sentence with which `call` is refused by an Error.
template <typename Error, typename Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace strait
