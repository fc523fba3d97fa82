// SPDX-License-Identifier: Apache-2.0
//
// NewArray, and lists of values in options: see arrays.h.
//
//     like a PyTorch tensor    torch.empty
//     like a NumPy array       numpy.empty
//     like anything else       memory aligned to 64 bytes, returned as a jax.Array (like a JAX array), as a NumPy array
//                              (like a memoryview, if NumPy is loaded), or as an object that exports DLPack
//
// Read next: outputs.cpp.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "arrays.h"

namespace regard::python {
namespace {

nb::object loaded_module(const char* name) {
  PyObject* const module = PyImport_GetModule(nb::str(name).ptr());
  if (module == nullptr) PyErr_Clear();
  return nb::steal(module);
}

bool is_torch(PyObject* object) {
  const nb::object torch = loaded_module("torch");
  return torch.is_valid() && nb::hasattr(torch, "Tensor") &&
         PyObject_IsInstance(object, torch.attr("Tensor").ptr()) == 1;
}

nb::object extents_of(const std::vector<Index>& shape) {
  nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SET_ITEM(extents.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  return extents;
}

// torch.empty(shape, dtype=type). Its arguments are looked up once, because a short call creates three tensors.
nb::object empty_tensor(NumberType type, const std::vector<Index>& shape) {
  struct Known {
    NumberType type;
    PyObject* dtype;
  };
  static const nb::object* const empty = new nb::object(loaded_module("torch").attr("empty"));
  static const nb::object* const names = new nb::object(nb::make_tuple("dtype"));
  static auto* const known = new std::vector<Known>;
  auto found = std::find_if(known->begin(), known->end(), [&](const Known& one) { return one.type == type; });
  if (found == known->end()) {
    nb::object dtype = loaded_module("torch").attr(type_text(type).c_str());
    found = known->insert(found, {type, dtype.release().ptr()});
  }
  const nb::object extents = extents_of(shape);
  PyObject* const arguments[] = {extents.ptr(), found->dtype};
  nb::object tensor = nb::steal(PyObject_Vectorcall(empty->ptr(), arguments, 1, names->ptr()));
  if (!tensor.is_valid()) throw nb::python_error();
  return tensor;
}

nb::object empty_array(NumberType type, const std::vector<Index>& shape) {
  const nb::object dtype = type == number_type<bfloat16>() ? nb::module_::import_("ml_dtypes").attr("bfloat16")
                                                           : nb::object(nb::str(type_text(type).c_str()));
  return loaded_module("numpy").attr("empty")(extents_of(shape), nb::arg("dtype") = dtype);
}

// JAX converts 64-bit elements to 32 bits unless enable_x64 is set.
nb::object jax_array(const nb::object& object, NumberType type) {
  const nb::object from_dlpack = nb::module_::import_("jax.dlpack").attr("from_dlpack");
  if (type.bits < 64) return from_dlpack(object);
  const nb::module_ jax = nb::module_::import_("jax");
  const nb::object keep =
      (nb::hasattr(jax, "enable_x64") ? jax : nb::module_::import_("jax.experimental")).attr("enable_x64")(true);
  const auto leave = [&] { keep.attr("__exit__")(nb::none(), nb::none(), nb::none()); };
  keep.attr("__enter__")();
  try {
    nb::object result = from_dlpack(object);
    leave();
    return result;
  } catch (...) {
    leave();
    throw;
  }
}

// Whether values are read one by one; false for arrays, which are read in place.
bool is_sequence(const char* operator_name, const char* name, nb::handle given) {
  if (PyList_Check(given.ptr()) || PyTuple_Check(given.ptr())) return true;
  if (PyObject_CheckBuffer(given.ptr()) || PyCapsule_CheckExact(given.ptr()) || nb::hasattr(given, "__dlpack__"))
    return false;
  if (PyUnicode_Check(given.ptr()) || !PySequence_Check(given.ptr())) {
    reject_type(operator_name, name, given, "a sequence of numbers, or an array with one axis");
  }
  return true;
}

// Calls take("name[0]", item), take("name[1]", item), … for all items.
template <class Take>
void for_each_item(const char* name, nb::handle sequence, const Take& take) {
  Index i = 0;
  for (const nb::handle item : nb::iter(sequence)) {
    std::string item_name = name;
    item_name += '[';
    item_name += std::to_string(i++);
    item_name += ']';
    take(item_name, item);
  }
}

}  // namespace

NewArray::NewArray(const char* operator_name, const char* name, nb::handle like, NumberType type,
                   const std::vector<Index>& shape) {
  if (is_torch(like.ptr())) {
    object_ = empty_tensor(type, shape);
  } else if (is_a(like.ptr(), "numpy.ndarray")) {
    object_ = empty_array(type, shape);
  } else {
    // With this alignment, JAX uses memory without copying it.
    constexpr std::align_val_t kAlignment{64};
    std::size_t bytes = type.bits / 8;
    std::vector<std::size_t> extents;
    for (const Index n : shape) {
      extents.push_back(static_cast<std::size_t>(n));
      if (__builtin_mul_overflow(bytes, extents.back(), &bytes)) throw std::bad_alloc();
    }
    void* const memory = ::operator new(bytes, kAlignment);
    const nb::capsule owner(memory, [](void* data) noexcept { ::operator delete(data, kAlignment); });
    for_jax_ = is_of_module(like.ptr(), "jaxlib") || is_of_module(like.ptr(), "jax");
    const nb::ndarray<> elements(memory, extents.size(), extents.data(), owner, nullptr,
                                 nb::dlpack::dtype{type.code, type.bits, 1});
    object_ = PyMemoryView_Check(like.ptr()) && loaded_module("numpy").is_valid()
                  ? nb::cast(nb::ndarray<nb::numpy>(elements))
                  : nb::cast(nb::ndarray<nb::array_api>(elements));
  }
  array.borrow(operator_name, name, object_, Access::write);
}

nb::object NewArray::hand_out() { return for_jax_ ? jax_array(object_, array.type()) : object_; }

std::vector<Index> index_list(const char* operator_name, const char* name, nb::handle given) {
  std::vector<Index> numbers;
  if (is_sequence(operator_name, name, given)) {
    for_each_item(name, given, [&](const std::string& item_name, nb::handle item) {
      const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
      if (!index.is_valid()) reject_type(operator_name, item_name, item, "an integer");
      int overflow = 0;
      numbers.push_back(PyLong_AsLongLongAndOverflow(index.ptr(), &overflow));
      if (overflow != 0) reject(operator_name, item_name + " does not fit into 64 bits");
    });
    return numbers;
  }
  const Array array(operator_name, name, given);
  const auto copy = [&]<class T>(T) {
    const auto view = array.view<const T, 1>(operator_name, name);
    numbers.resize(static_cast<std::size_t>(view.shape[0]));
    for (Index i = 0; i < view.shape[0]; ++i) {
      T number;
      std::memcpy(&number, view.pointer(i), sizeof number);
      numbers[static_cast<std::size_t>(i)] = number;
    }
  };
  if (array.type() == number_type<std::int32_t>()) {
    copy(std::int32_t{});
  } else if (array.type() == number_type<std::int64_t>()) {
    copy(std::int64_t{});
  } else {
    reject(operator_name, std::string(name) + " has type " + type_text(array.type()) + "; expected int32 or int64");
  }
  return numbers;
}

template <class T>
std::vector<T> number_list(const char* operator_name, const char* name, nb::handle given) {
  std::vector<T> numbers;
  if (is_sequence(operator_name, name, given)) {
    for_each_item(name, given, [&](const std::string& item_name, nb::handle item) {
      const double number = PyFloat_AsDouble(item.ptr());
      if (PyErr_Occurred() != nullptr) reject_type(operator_name, item_name, item, "a number");
      numbers.push_back(static_cast<T>(number));
    });
    return numbers;
  }
  const Array array(operator_name, name, given);
  const auto view = array.view<const T, 1>(operator_name, name);
  for (Index i = 0; i < view.shape[0]; ++i) {
    T number;
    std::memcpy(&number, view.pointer(i), sizeof number);
    numbers.push_back(number);
  }
  return numbers;
}
template std::vector<float> number_list<float>(const char*, const char*, nb::handle);
template std::vector<double> number_list<double>(const char*, const char*, nb::handle);

}  // namespace regard::python
