// SPDX-License-Identifier: Apache-2.0
//
// What a throw expression becomes without exception handling: the message of the exception is passed to JavaScript,
// which throws an Error in its place. No destructor runs and no handler is entered, so the caller drops the instance.
// Read next: web/core.js.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

// Imported: throws Error(message).
extern "C" [[noreturn]] __attribute__((import_module("regard"), import_name("throw_error"))) void throw_error(
    const char* message, std::size_t num_bytes);

namespace {

// The first members of __cxxabiv1::__shim_type_info of libc++abi, whose header is private.
class TypeInfo : public std::type_info {
 public:
  virtual void noop1() const;
  virtual void noop2() const;
  // Whether a handler for this type catches an object of type `thrown`; points `object` to its part of this type.
  virtual bool can_catch(const TypeInfo* thrown, void*& object) const = 0;
};

}  // namespace

extern "C" void* __cxa_allocate_exception(std::size_t num_bytes) noexcept { return std::malloc(num_bytes); }
extern "C" void __cxa_free_exception(void* object) noexcept { std::free(object); }

extern "C" [[noreturn]] void __cxa_throw(void* object, std::type_info* thrown, void (*)(void*)) {
  const auto* const exception = static_cast<const TypeInfo*>(&typeid(std::exception));
  const char* const message = exception->can_catch(static_cast<const TypeInfo*>(thrown), object)
                                  ? static_cast<const std::exception*>(object)->what()
                                  : "unknown error";
  throw_error(message, std::strlen(message));
}
