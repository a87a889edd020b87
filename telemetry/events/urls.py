"""Addresses of this room."""

from django.urls import path

from telemetry.events import views

app_name = "events"
urlpatterns = [
    path("", views.events, name="events"),
    path("events.csv", views.events_csv, name="events_csv"),
    path("catalogue/", views.catalogue, name="catalogue"),
    path("catalogue/messages.csv", views.catalogue_csv, name="catalogue_csv"),
    path("newest/", views.newest, name="newest"),
    path("news/", views.new_event_count, name="news"),
    path("views/", views.add_view, name="saved"),
    path("views/<int:pk>/", views.change_view, name="saved_change"),
    path("views/<int:pk>/removal/", views.remove_view, name="saved_remove"),
    path("<int:pk>/", views.event, name="event"),
]
