#include "launcher/base/cut_to_columns.h"

namespace strait::base {

std::string cut_to_columns(const std::string& text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (begins && used++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace strait::base
