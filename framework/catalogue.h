#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace strait {

// Parts that are chosen by name: schedules, codecs and so on. `Offer` has a `name`. A catalogue
// starts with the parts of this build. A plugin adds its own before anything is planned, in the
// order in which the user named the plugins. Nothing is ever removed.
//
// Threads: add() while the program has one thread; the other functions from any.
template <class Offer>
class Catalogue {
 public:
  // `kind` is the word that errors use: "schedule".
  Catalogue(std::string kind, std::initializer_list<Offer> built_in) : kind_(std::move(kind)) {
    for (const Offer& offer : built_in) add(offer);
  }
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  // std::invalid_argument if the name is taken, or is not made of letters, digits, "_", "-" and
  // ".".
  void add(Offer offer) {
    const std::string name(offer.name);
    constexpr std::string_view kLetters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (name.empty() || name.size() > 64 || name.find_first_not_of(kLetters) != std::string::npos) {
      throw std::invalid_argument("\"" + name + "\" is not a name for a " + kind_ +
                                  ": it takes 1 to 64 letters, digits, \"_\", \"-\" or \".\"");
    }
    if (find(name) != nullptr) {
      throw std::invalid_argument("there is a " + kind_ + " called \"" + name + "\" already");
    }
    offers_.push_back(std::move(offer));
  }

  const Offer* find(std::string_view name) const {
    for (const Offer& offer : offers_) {
      if (offer.name == name) return &offer;
    }
    return nullptr;
  }

  // std::invalid_argument, with all names, if there is none of this name.
  const Offer& named(std::string_view name) const {
    if (const Offer* offer = find(name)) return *offer;
    std::string allowed;
    for (const Offer& offer : offers_) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(offer.name);
    }
    throw std::invalid_argument("unknown " + kind_ + " \"" + std::string(name) +
                                "\"; allowed are: " + allowed);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Offer& offer : offers_) names.emplace_back(offer.name);
    return names;
  }

  // In the order of add().
  const std::vector<Offer>& all() const { return offers_; }

 private:
  std::string kind_;
  std::vector<Offer> offers_;
};

}  // namespace strait
