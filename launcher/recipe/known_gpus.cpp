#include "launcher/recipe/known_gpus.h"

#include <algorithm>
#include <array>
#include <string>

namespace strait::recipe {
namespace {

// From the makers' data sheets.
constexpr std::array kKnownGpus = {
    KnownGpu{"B200", 2250, 75, 180},      KnownGpu{"H200", 989, 67, 141},
    KnownGpu{"H100", 989, 67, 80},        KnownGpu{"H100 PCIe", 756, 51, 80},
    KnownGpu{"H100 NVL", 835, 60, 94},    KnownGpu{"H800", 989, 67, 80},
    KnownGpu{"A100", 312, 19.5, 40},      KnownGpu{"A100 80GB", 312, 19.5, 80},
    KnownGpu{"A800", 312, 19.5, 80},      KnownGpu{"A40", 150, 37.4, 48},
    KnownGpu{"A30", 165, 10.3, 24},       KnownGpu{"A10G", 70, 31.5, 24},
    KnownGpu{"A10", 125, 31.2, 24},       KnownGpu{"L40S", 362, 91.6, 48},
    KnownGpu{"L40", 181, 90.5, 48},       KnownGpu{"L4", 121, 30.3, 24},
    KnownGpu{"T4", 0, 8.1, 16},           KnownGpu{"V100", 0, 15.7, 16},
    KnownGpu{"P100", 0, 10.6, 16},        KnownGpu{"RTX 6000 Ada", 364, 91.1, 48},
    KnownGpu{"RTX A6000", 155, 38.7, 48}, KnownGpu{"RTX A5000", 111, 27.8, 24},
    KnownGpu{"RTX A4000", 77, 19.2, 16},  KnownGpu{"RTX 5090", 210, 104.8, 32},
    KnownGpu{"RTX 5080", 113, 56.3, 16},  KnownGpu{"RTX 5070 Ti", 88, 43.9, 16},
    KnownGpu{"RTX 5070", 62, 30.9, 12},   KnownGpu{"RTX 4090", 165, 82.6, 24},
    KnownGpu{"RTX 4080", 97, 48.7, 16},   KnownGpu{"RTX 4070 Ti", 80, 40.1, 12},
    KnownGpu{"RTX 4070", 58, 29.1, 12},   KnownGpu{"RTX 4060 Ti", 44, 22.1, 8},
    KnownGpu{"RTX 4060", 30, 15.1, 8},    KnownGpu{"RTX 3090 Ti", 80, 40.0, 24},
    KnownGpu{"RTX 3090", 71, 35.6, 24},   KnownGpu{"RTX 3080 Ti", 68, 34.1, 12},
    KnownGpu{"RTX 3080", 60, 29.8, 10},   KnownGpu{"RTX 3070", 41, 20.3, 8},
    KnownGpu{"RTX 3060", 25, 12.7, 12},   KnownGpu{"RTX 2080 Ti", 0, 13.4, 11},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Lower case; a space for anything else than letters and digits, so that numbers keep their ends.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || is_digit(c);
    letters += static_cast<char>(upper ? c - 'A' + 'a' : kept ? c : ' ');
  }
  return letters;
}

// Where a word ends in `text`, from `at` on. A number is found whole: 40 is not in 4000.
std::size_t end_of_word(const std::string& text, const std::string& word, std::size_t at) {
  while ((at = text.find(word, at)) != text.npos) {
    const std::size_t end = at + word.size();
    if (end == text.size() || !is_digit(text[end]) || !is_digit(word.back())) return end;
    ++at;
  }
  return text.npos;
}

// Whether all words of a known name are in `text`, in this order: those of "A100 80GB" are in
// "NVIDIA A100-SXM4-80GB".
bool contains(const std::string& text, std::string_view name) {
  std::size_t from = 0;
  for (std::size_t at = 0; at < name.size() && from != text.npos;) {
    const std::size_t end = std::min(name.find(' ', at), name.size());
    from = end_of_word(text, letters_of(name.substr(at, end - at)), from);
    at = end + 1;
  }
  return from != text.npos;
}

}  // namespace

// The longest known name, because "RTX 3080 Ti" contains "RTX 3080".
const KnownGpu* known_gpu(std::string_view name) {
  const std::string wanted = letters_of(name);
  const KnownGpu* best = nullptr;
  for (const KnownGpu& gpu : kKnownGpus) {
    const bool longer = best == nullptr || gpu.name.size() > best->name.size();
    if (longer && contains(wanted, gpu.name)) best = &gpu;
  }
  return best;
}

}  // namespace strait::recipe
